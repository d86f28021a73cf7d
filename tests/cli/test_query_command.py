"""`unerring query` as it is called: files in, JSON lines out, one sentence and exit code 2 for mistakes."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unerring.cli import main

SQL = (
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY id ORDER BY at MEASURES LAST(v) AS v, LAST(at) AS at "
    "PATTERN (A B) DEFINE B AS v > A.v)"
)
ROWS = [
    {"id": 1, "v": 1.5, "at": "2026-01-01 00:00:00"},
    {"id": 1, "v": 2.5, "at": "2026-01-01 00:00:01"},
    {"id": 2, "v": 2.0, "at": "2026-01-01 00:00:02"},
    {"id": 2, "v": 1.0, "at": "2026-01-01 00:00:03"},
]
FOUND = [{"id": 1, "v": 2.5, "at": "2026-01-01T00:00:01"}]
HEADED = "id,v,at\n" + "\n".join(",".join(map(str, row.values())) for row in ROWS) + "\n"


def ask(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the rows, and what was said on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(["query", *arguments])
    out, err = capsysbinary.readouterr()
    code = ended.value.code
    return int(code or 0), [json.loads(line) for line in out.splitlines()], err.decode().strip()


def write(folder: Path, name: str) -> Path:
    """The rows in the format that the name says."""
    path = folder / name
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(HEADED.encode()))
    else:
        path.write_text(HEADED if name.endswith(".csv") else lines)
    return path


SCHEMA = "t=id bigint, v double, at timestamp"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.ndjson", "t.json", "t.parquet"])
def test_formats(name: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path, name)
    assert ask(capsysbinary, SQL, "--table", f"t={path}", "--schema", SCHEMA) == (0, FOUND, "")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_types_are_found_out(name: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path, name)
    assert ask(capsysbinary, SQL, "--table", f"t={path}") == (0, FOUND, "")


def test_a_csv_without_a_head_takes_names_from_the_schema(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADED.partition("\n")[2])
    assert ask(capsysbinary, SQL, "--table", f"t={path}", "--schema", SCHEMA) == (0, FOUND, "")


def test_a_schema_chooses_and_types_columns_by_name(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path, "t.csv")
    code, rows, _ = ask(
        capsysbinary, "SELECT * FROM t LIMIT 1", "--table", f"t={path}", "--schema", "t=v decimal(10, 2), id varchar"
    )
    assert (code, rows) == (0, [{"v": 1.5, "id": "1"}])
    assert list(rows[0]) == ["v", "id"]


def test_several_tables(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path, "t.csv")
    names = tmp_path / "names.jsonl"
    names.write_text('{"id": 1, "name": "one"}\n')
    sql = SQL.replace("*", "name, v", 1) + " AS m JOIN names USING (id)"
    assert ask(capsysbinary, sql, "--table", f"t={path}", "--table", f"names={names}") == (
        0,
        [{"name": "one", "v": 2.5}],
        "",
    )


@pytest.mark.parametrize("engine", ["oracle", "kernel", "interpreter", "backtrack"])
def test_every_matcher_gives_the_same(engine: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path, "t.csv")
    assert ask(capsysbinary, SQL, "--table", f"t={path}", "--engine", engine) == (0, FOUND, "")


def test_explain_names_what_stays_interpreted(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path, "t.csv")
    all_rows = SQL.replace("PATTERN", "ALL ROWS PER MATCH PATTERN").replace(
        "LAST(v) AS v, LAST(at) AS at", "LAST(v) AS w"
    )
    code, (plan,), _ = ask(capsysbinary, all_rows, "--table", f"t={path}", "--explain", "--json")
    assert (code, plan["pattern"], plan["matcher"]) == (0, "(A B)", "interpreted")
    assert "all rows" in plan["why"]


def test_the_statement_from_standard_input(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "t.csv")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SQL.encode())))
    assert ask(capsysbinary, "-", "--table", f"t={path}") == (0, FOUND, "")


def test_values_that_json_has_no_word_for(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n")
    sql = "SELECT CAST('NaN' AS double) AS nan, CAST(1.5 AS decimal(4,2)) AS d, DATE '2026-01-02' AS day, NULL FROM t"
    assert ask(capsysbinary, sql, "--table", f"t={path}")[1] == [
        {"nan": None, "d": 1.5, "day": "2026-01-02", "NULL": None}
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("SELECT * FROM t", "--table", "t=nowhere.csv"), "there is no file nowhere.csv"),
        (("SELECT * FROM t", "--table", "t=x.doc"), "the name must end in .csv"),
        (("SELECT * FROM t", "--table", "t"), "is not NAME=VALUE"),
        (("SELECT * FROM t", "--schema", "t=id bigint"), "there is no --table of that name"),
        (("SELECT * FROM t", "--table", "t={path}", "--table", "T={path}"), "table T is given twice"),
        (
            ("SELECT * FROM t", "--table", "t={path}", "--schema", "t=id"),
            "'id' is not a column; write a name and a type",
        ),
        (("SELECT * FROM t", "--table", "t={path}", "--schema", "t=id nonsense"), "nonsense"),
        (("SELECT * FROM t", "--table", "t={path}", "--schema", "t=id bigint, w double"), "has no column w"),
        (("SELECT * FROM t", "--table", "t={path}", "--schema", "t=at bigint"), "2026-01-01 00:00:00"),
        (("SELECT CAST('x' AS bigint) FROM t", "--table", "t={path}"), "Could not convert string 'x'"),
        (("SELECT nothing FROM t", "--table", "t={path}"), "line 1, column 8: "),
        (("SELECT * FROM read_csv('{path}')",), "disabled by configuration"),
        (("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A)", "--table", "t={path}"), "line 1, column 17: a ) is missing"),
    ],
)
def test_a_mistake_ends_with_one_sentence(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = write(tmp_path, "t.csv")
    code, rows, sentence = ask(capsysbinary, *(argument.replace("{path}", str(path)) for argument in arguments))
    assert (code, rows) == (2, [])
    assert said in sentence
    assert "\n" not in sentence


def test_a_statement_that_is_no_text_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    said = "unerring: line 2, column 6: here is a byte that is not UTF-8 text; write the statement in UTF-8"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SELECT *\nFROM \xe4")))
    assert ask(capsysbinary, "-") == (2, [], said)
    assert ask(capsysbinary, b"SELECT *\nFROM \xe4".decode("utf-8", "surrogateescape")) == (2, [], said)


def test_a_statement_without_an_end_is_refused_soon(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SELECT 1 -- " + b"x" * 2_000_000)))
    code, _, said = ask(capsysbinary, "-")
    assert (code, said.partition(" characters")[0]) == (2, "unerring: the statement has 800001")
