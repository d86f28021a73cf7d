"""What a store's refusal means: nothing is there, try again, or a sentence that says what to change.

The texts of the library are long and may quote headers; a sentence of ours has the store's own code and no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from unerring.log.store.client import Conflict, Unsure
from unerring.model import DiskError

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|\"code\": ?\"(\w+)\"")
_REGION: Final = re.compile(r"<Region>([\w-]+)</Region>|expecting '([\w-]+)'")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_WRONG_REGION: Final = (
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
    "IllegalLocationConstraintException",
    "incorrectly configured region",
)
_NO_CREDENTIALS: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_TEMPORARY: Final = ("408", "425", "429")


@contextmanager
def answered(bucket: str, path: str, kind: str) -> Iterator[None]:
    """Turn the library's errors into ours: FileNotFoundError (no such object), EOFError (no such range), `Conflict`,
    `Unsure`, or a DiskError with a sentence."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError):
        raise Conflict from None
    except (FileNotFoundError, exceptions.BaseError, ValueError, OSError) as error:
        absent = isinstance(error, FileNotFoundError)
        _judge(bucket, f"{bucket}/{path}".rstrip("/"), kind, str(error), absent)


def _judge(bucket: str, where: str, kind: str, text: str, absent: bool) -> None:
    stated, coded = _STATUS.search(text), _CODE.search(text)
    status = stated[1] if stated else ""
    code = (coded[1] or coded[2]) if coded else ""
    answer = " ".join(part for part in (status, code) if part)
    if any(sign in text for sign in _NO_BUCKET):
        raise DiskError(f"there is no bucket {bucket} ({answer}); create it, or correct the address") from None
    if absent or status == "404":
        raise FileNotFoundError(where) from None
    if status == "416" or "Wanted range starting" in text:
        raise EOFError(where) from None
    if any(sign in text for sign in _WRONG_REGION) or status in ("301", "307"):
        told = _REGION.search(text)
        region = f": set AWS_REGION={told[1] or told[2]}" if told else "; set AWS_REGION to the bucket's region"
        raise DiskError(f"bucket {bucket} is in another region than the one asked{region}") from None
    if any(sign in text for sign in _NO_CREDENTIALS):
        raise DiskError(
            f"there are no credentials for {bucket}; set them in the environment or in a profile, "
            "as for the cloud's own tools"
        ) from None
    if status in ("401", "403"):
        verb = {"put": "write", "delete": "delete", "list": "list"}.get(kind, "read")
        raise DiskError(
            f"{bucket} does not let us {verb} {where} ({answer}); check the credentials and what they may do"
        ) from None
    if status == "501":
        raise DiskError(
            f"{bucket} cannot {kind} {where} as asked ({answer}); use a store with conditional puts"
        ) from None
    if status.startswith("4") and status not in _TEMPORARY:
        raise DiskError(f"{bucket} refuses to {kind} {where} ({answer})") from None
    if status or "error sending request" in text or "HTTP error" in text or "request or response body" in text:
        raise Unsure(answer or _short(text)) from None
    raise DiskError(f"cannot {kind} {where}: {_short(text)}") from None


def _short(text: str) -> str:
    """The first line, without addresses: they are in the sentence already."""
    return re.sub(r"\S+://\S+ ?", "", text.partition("\n")[0])[:200]
