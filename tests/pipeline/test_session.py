"""What is said when Spark does not start, or ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import py4j.java_gateway

from unerring.pipeline.session import own_sentence, sentence_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OfADeadJvm(Exception):
    """As Py4J's errors are: their text is in the JVM."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_whose_jvm_is_gone_has_a_sentence_all_the_same() -> None:
    assert own_sentence(OfADeadJvm()) is None
    assert sentence_of(OfADeadJvm()) == "OfADeadJvm: the JVM ended before it could say why"


def test_a_module_that_executors_lack_is_named() -> None:
    """As Spark tells of a daemon that does not start, and of a task that cannot unpickle its function."""
    daemon = "/usr/bin/python3: Error while finding module specification for 'unerring.pipeline.daemon' "
    daemon += "(ModuleNotFoundError: No module named 'unerring')"
    for text, name in ((daemon, "unerring"), ("ModuleNotFoundError: No module named 'plant.app'", "plant.app")):
        sentence = own_sentence(Exception(f"Error from python worker:\n  {text}\nPYTHONPATH was:"))
        assert sentence is not None
        assert sentence.startswith(f"Spark's Python workers have no module {name}: install it on every worker")


def test_the_most_telling_line_is_said() -> None:
    java = "An error occurred.\n: org.apache.spark.SparkException: no\nCaused by: java.io.IOException: full"
    assert sentence_of(Exception(java)) == "java.io.IOException: full"
    assert sentence_of(Exception("x unerring.model.errors.LogError: it is damaged\n at y")) == "it is damaged"


def test_what_py4j_says_of_a_jvm_that_ends_is_not_shown(spark: SparkSession) -> None:
    """It says it by the root's logger, at times while a run ends in order."""
    theirs = logging.LogRecord("root", logging.ERROR, py4j.java_gateway.__file__, 1, "sending", (), None)
    ours = logging.LogRecord("root", logging.ERROR, __file__, 1, "sending", (), None)
    assert not logging.getLogger().filter(theirs)
    assert logging.getLogger().filter(ours)
