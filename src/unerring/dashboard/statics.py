"""The page's own files, from memory: a page asks for all of its modules at once, and a disk or a thread for each of
them would take longer than anything that it shows."""

from __future__ import annotations

import mimetypes
from functools import cache
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from xxhash import xxh3_64_hexdigest

STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css", ".html": "text/html"}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Of each name its bytes, its media type, and a tag that is another one for other bytes."""
    known = {}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            known[path.relative_to(STATIC).as_posix()] = content, kind, f'"{xxh3_64_hexdigest(content)}"'
    return known


async def static(request: Request) -> Response:
    """One of the files. A browser that has it is told that it still counts."""
    file = _files().get(request.path_params["name"])
    if file is None:
        raise HTTPException(404)
    content, kind, tag = file
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)
