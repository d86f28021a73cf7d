"""Kafka: addresses, what a broker's errors mean, and topics read partition by partition, without consumer groups."""

from unerring.runtime.kafka.address import KafkaAddress, client_options, explain, greet, kafka, parse_kafka

__all__ = ["KafkaAddress", "client_options", "explain", "greet", "kafka", "parse_kafka"]
