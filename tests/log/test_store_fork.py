"""A process that was forked after its parent had used an object store is refused: it would wait for ever."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.s3 import S3Server

PROGRAM = """
import os, sys
from unerring.log import store_at
from unerring.model import CallerError
store = store_at("s3://unerring/forked")
if sys.argv[1] == "used":
    store.read("x")
child = os.fork()
if child == 0:
    try:
        print("child:", store.create(f"x-{sys.argv[1]}", b"1"), flush=True)
    except CallerError as error:
        print("child:", error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent:", store.read("y"))
"""


def forked(s3: S3Server, how: str) -> list[str]:
    environment = {**os.environ, **s3.environment()}
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.splitlines()


def test_a_child_of_a_process_that_had_used_it_is_refused(s3: S3Server) -> None:
    child, parent = forked(s3, "used")
    assert "which had used an object store before; start processes that use s3://unerring by spawning" in child
    assert parent == "parent: None"


def test_a_child_of_a_process_that_only_made_the_store_may_use_it(s3: S3Server) -> None:
    # As Spark's Python workers do: their daemon imports and makes, and never reads or writes.
    assert forked(s3, "made") == ["child: True", "parent: None"]
