"""The project's corpus, replayed without a fuzzer: what was found once stays repaired."""

from __future__ import annotations

import pytest

from tests.fuzz.run import CORPUS, CORPUS_BYTES_MAX, cause
from tests.fuzz.targets import TARGETS, carefully


def test_every_target_has_a_corpus_and_no_other_is_there() -> None:
    assert sorted(TARGETS) == sorted(path.name for path in CORPUS.iterdir())
    for folder in CORPUS.iterdir():
        sizes = [path.stat().st_size for path in folder.iterdir()]
        assert 0 < sum(sizes) <= CORPUS_BYTES_MAX, folder.name


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_input_of_the_corpus_breaks_its_decoder(name: str) -> None:
    target = carefully(TARGETS[name]())
    for path in sorted((CORPUS / name).iterdir()):
        try:
            target(path.read_bytes())
        except BaseException as error:
            error.add_note(f"{path}: {cause(error)}")
            raise


def test_an_error_that_is_not_ours_would_be_found() -> None:
    def broken(data: bytes) -> int:
        return data[0]

    with pytest.raises(IndexError):
        carefully(broken)(b"")
