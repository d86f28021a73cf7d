"""Kafka: addresses, what a broker's errors mean, and topics read partition by partition, without consumer groups."""

from unerring.runtime.kafka.address import CHANNEL, KafkaAddress, client_options, explain, greet, kafka_url, parse_kafka
from unerring.runtime.kafka.positions import Extent, Loss, Reading, Topic, decide, producer_of
from unerring.runtime.kafka.reader import KafkaReader, TakenMessage
from unerring.runtime.kafka.topic import KafkaConfig, KafkaSource, read_span, reads_topic, source_of, topic_now

__all__ = [
    "CHANNEL",
    "Extent",
    "KafkaAddress",
    "KafkaConfig",
    "KafkaReader",
    "KafkaSource",
    "Loss",
    "Reading",
    "TakenMessage",
    "Topic",
    "client_options",
    "decide",
    "explain",
    "greet",
    "kafka_url",
    "parse_kafka",
    "producer_of",
    "read_span",
    "reads_topic",
    "source_of",
    "topic_now",
]
