"""examples/declarative: a rule as a flow between two tables, run by Spark's own command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import unerring

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "declarative"
QUICK = {
    "spark.driver.memory": "700m",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.mark.long
def test_a_rule_is_a_flow_between_two_tables(tmp_path: Path, java: Path) -> None:
    project = tmp_path / "plant"
    shutil.copytree(EXAMPLE, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/plant-pipeline", (project / "storage").as_uri()))
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(unerring.__file__).parent.parent),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    options = [part for name, value in QUICK.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [home / "bin" / "spark-pipelines", *options, "run"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    began = datetime(2026, 3, 1, 8, 0, 4)
    wanted = {"time": began.replace(second=6), "machine": "press-1", "began": began, "peak": 85.5}
    held = project / "spark-warehouse"
    assert pq.read_table(held / "readings").num_rows == 5
    assert pq.read_table(held / "overheating").to_pylist() == [{**wanted, "ordinal": 0}]
    assert pq.read_table(held / "alarms").to_pylist() == [wanted]
