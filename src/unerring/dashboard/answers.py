"""How the dashboard answers: headers that keep a page to itself, and errors that are sentences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from unerring.model import CallerError, UnerringError

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    # Nobody else learns where somebody was; our own forms say that they are ours.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


async def body_of(request: Request, bytes_max: int) -> bytes:
    """What was sent with a request; CallerError where it is more, and the rest of it stays unread."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > bytes_max:
            raise CallerError(f"the request has more than {bytes_max} bytes; send less")
    return bytes(body)


Answer = Callable[[Request], Awaitable[Any]]


class Refused(msgspec.Struct, frozen=True):
    """An answer with a sentence and a status of its own."""

    error: str
    status: int

    @property
    def response(self) -> Response:
        return Response(msgspec.json.encode({"error": self.error}), self.status, HEADERS, "application/json")


def in_json(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """The result of `answer` as JSON; its errors as a sentence."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await answer(request)
        except CallerError as error:
            body = Refused(str(error), 400)
        except (UnerringError, OSError) as error:
            body = Refused(str(error), 503)
        if isinstance(body, Refused):
            return body.response
        return Response(msgspec.json.encode(body), 200, HEADERS, "application/json")

    return endpoint
