"""Many more random statements than fit into a test run: every engine against the oracle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = os.environ.get("SQL_EXAMPLES", "20000")


def test_random_statements() -> None:
    file = Path(__file__).parent.parent / "sql" / "test_random_statements.py"
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", str(file)]
    done = subprocess.run(
        command, env={**os.environ, "SQL_EXAMPLES": EXAMPLES}, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
