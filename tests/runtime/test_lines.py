"""Files of lines: a damaged line is passed over, and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.runtime.timeline import FILE, OLD_FILE, Timeline, What, note


@pytest.mark.parametrize("at", range(0, 160, 7))
def test_a_flipped_bit_costs_its_line_and_is_said(tmp_path: Path, at: int) -> None:
    for said in ("one", "two", "three"):
        note(tmp_path, "n0", What.STARTED, said)
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    read = Timeline(tmp_path)
    assert [one.said for one in read.added()] in (["two", "three"], ["one", "three"], ["three"])
    assert "timeline.jsonl has a damaged line" in read.damaged


def test_bytes_that_are_no_text_are_a_sentence(tmp_path: Path) -> None:
    note(tmp_path, "n0", What.STARTED, "one")
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"at_us":1,"who":"\xff","what":"x"}\n')
    read = Timeline(tmp_path)
    assert [one.said for one in read.added()] == ["one"]
    assert "damaged line" in read.damaged


def test_lines_of_an_older_release_are_read(tmp_path: Path) -> None:
    """Without digests, and under the file's old name."""
    (tmp_path / OLD_FILE).write_bytes(b'{"at_us":1,"who":"n0","what":"started","said":"old"}\n')
    note(tmp_path, "n0", What.ENDED, "new")
    read = Timeline(tmp_path)
    assert [one.said for one in read.added()] == ["old", "new"]
    assert not read.damaged
