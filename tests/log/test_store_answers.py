"""What a store's refusal means: nothing is there, try again, or a sentence that says what to change."""

from __future__ import annotations

import pytest

from unerring.log import Conflict, Unsure
from unerring.log.store.answers import answered
from unerring.model import DiskError

MEANT = (Conflict, Unsure, DiskError, FileNotFoundError, EOFError)


def judged(error: Exception, kind: str = "get", path: str = "run/x") -> Exception:
    with pytest.raises(MEANT) as raised, answered("s3://b", path, kind):
        raise error
    return raised.value


def of(status: str, more: str = "") -> OSError:
    return OSError(f"Generic S3 error: status code: {status}{more}")


def test_a_condition_that_does_not_hold_is_a_conflict() -> None:
    from obstore import exceptions

    for kind in (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError):
        assert isinstance(judged(kind("there")), Conflict)


@pytest.mark.parametrize("error", [FileNotFoundError("run/x"), of("404", " <Code>NoSuchKey</Code>")])
def test_an_object_that_is_not_there_is_named(error: Exception) -> None:
    found = judged(error)
    assert (type(found), str(found)) == (FileNotFoundError, "s3://b/run/x")
    assert str(judged(error, path="")) == "s3://b"


@pytest.mark.parametrize("error", [of("416"), ValueError("Wanted range starting at 7, but object was only 5 bytes")])
def test_a_range_behind_the_end_is_told_apart(error: Exception) -> None:
    assert type(judged(error)) is EOFError


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (of("404", " <Code>NoSuchBucket</Code>"), "get", "there is no bucket s3://b (404 NoSuchBucket); create it"),
        (FileNotFoundError("The specified bucket does not exist"), "get", "there is no bucket s3://b ()"),
        (of("301"), "get", "in another region than the one asked; set AWS_REGION to the bucket's region"),
        (of("307", " <Region>eu-west-1</Region>"), "get", "than the one asked: set AWS_REGION=eu-west-1"),
        (
            of("400", " <Code>AuthorizationHeaderMalformed</Code> expecting 'us-east-2'"),
            "get",
            "set AWS_REGION=us-east-2",
        ),
        (OSError("error sending request for url (http://169.254.169.254/latest)"), "get", "there are no credentials"),
        (of("401"), "get", "s3://b does not let us read s3://b/run/x (401); check the credentials"),
        (of("403", " <Code>AccessDenied</Code>"), "put", "does not let us write s3://b/run/x (403 AccessDenied)"),
        (of("403"), "delete", "does not let us delete s3://b/run/x"),
        (of("403"), "list", "does not let us list s3://b/run/x"),
        (of("501"), "put", "s3://b cannot put s3://b/run/x as asked (501); use a store with conditional puts"),
        (of("400", ' {"code": "InvalidTag"}'), "put", "s3://b refuses to put s3://b/run/x (400 InvalidTag)"),
        (OSError("no such thing as https://b.example/x?token=hush here\nand more"), "get", "no such thing as here"),
    ],
)
def test_what_does_not_go_away_by_itself_is_a_sentence(error: Exception, kind: str, sentence: str) -> None:
    found = judged(error, kind)
    assert type(found) is DiskError
    assert sentence in str(found)
    assert "hush" not in str(found)
    assert "and more" not in str(found)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (of("503", " <Code>SlowDown</Code>"), "503 SlowDown"),
        (of("500"), "500"),
        (of("408"), "408"),
        (of("425"), "425"),
        (of("429"), "429"),
        (OSError("error sending request for url (https://b.example/x)"), "error sending request for url "),
        (OSError("HTTP error: connection reset"), "HTTP error: connection reset"),
        (OSError("request or response body error"), "request or response body error"),
    ],
)
def test_what_may_go_away_is_unsure(error: Exception, said: str) -> None:
    found = judged(error)
    assert type(found) is Unsure
    assert said in str(found)
