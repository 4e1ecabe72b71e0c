"""Bodies of requests: bytes, or parts of which the large ones are read while they are sent."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from noetl.tools.base import ToolError
from noetl.tools.roots import inside
from noetl.tools.stored import UNKNOWN, about, chunks_of, stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from noetl.dsl.tasks import Http
    from noetl.tools.base import ToolContext

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
_QUOTED: Final = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes that lie elsewhere."""

    size: int
    read: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class Streamed:
    """A body in pieces; it can be sent again, as a redirect may ask for."""

    pieces: tuple[bytes | Stored, ...]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in self.pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes from the beginning."""
        for piece in self.pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            sent = 0
            async for chunk in piece.read():
                sent += len(chunk)
                yield chunk
            if sent != piece.size:
                message = "a part has changed while it was sent"
                raise ToolError("storage_access", "part_changed", message)


async def body_of(
    config: Http, ctx: ToolContext, roots: tuple[Path, ...]
) -> tuple[bytes | Streamed | None, str]:
    """The body of a task's request and its type."""
    if config.json is not None:
        return msgspec.json.encode(config.json), JSON
    if config.form is not None:
        return urlencode(pairs(config.form)).encode(), FORM
    if config.files is not None:
        return _multipart([await _part(item, ctx, roots) for item in _named_parts(config.files)])
    raw = config.body if config.body is not None else config.data
    if raw is None:
        return None, ""
    if isinstance(raw, str):
        return raw.encode(), ""
    return msgspec.json.encode(raw), JSON


def pairs(params: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - a map or pairs
    """Names and texts; a list gives its name once per item, null gives none."""
    rows: Iterable[Any] = params.items() if isinstance(params, Mapping) else params
    found: list[tuple[str, str]] = []
    for row in rows:
        if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != 2:  # noqa: PLR2004 - a pair
            raise invalid("/params", "a list must hold pairs of name and value")
        name, value = row
        values = value if isinstance(value, (list, tuple)) else [value]
        found += [(str(name), text_of(item)) for item in values if item is not None]
    return found


def text_of(value: object) -> str:
    """A value as a header, a field or a parameter has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Mapping, list, tuple)):
        return msgspec.json.encode(value).decode()
    return "" if value is None else str(value)


def invalid(place: str, said: str) -> ToolError:
    """The error of a key that cannot be used."""
    return ToolError("config", "invalid_config", f"{place}: {said}")


# ---------------------------------------------------------------------------- parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    name: str
    content: bytes | Stored
    filename: str | None = None
    media_type: str = ""

    @property
    def head(self) -> bytes:
        """What stands before the content."""
        said = f'form-data; name="{self.name.translate(_QUOTED)}"'
        if self.filename is not None:
            said += f'; filename="{self.filename.translate(_QUOTED)}"'
        lines = [f"Content-Disposition: {said}"]
        if self.filename is not None:
            lines.append(f"Content-Type: {self.media_type}")
        return "\r\n".join([*lines, "", ""]).encode()


def _named_parts(files: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a map or a list
    """The parts, each with its name; a list under a name is several of that name."""
    if isinstance(files, Mapping):
        return [
            {"name": name, **(part if isinstance(part, Mapping) else {"content": part})}
            for name, given in files.items()
            for part in (given if _are_parts(given) else [given])
        ]
    if isinstance(files, list) and all(
        isinstance(part, Mapping) and part.get("name") for part in files
    ):
        return [dict(part) for part in files]
    raise invalid("/files", "must be a map, or a list of {name, filename, content}")


def _are_parts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, Mapping) for one in given)


async def _part(part: Mapping[str, Any], ctx: ToolContext, roots: tuple[Path, ...]) -> _Part:
    """One part; with `value` it is a plain field."""
    name = str(part["name"])
    if "value" in part:
        return _Part(name=name, content=text_of(part["value"]).encode())
    filename, kind = str(part.get("filename") or ""), str(part.get("content_type") or "")
    content: bytes | Stored
    if part.get("ref"):
        ref = str(part["ref"])
        stat = await about(ref, ctx)
        content = Stored(size=stat.size, read=partial(stream, ref, ctx))
        kind = kind or ("" if stat.media_type == UNKNOWN else stat.media_type)
    elif part.get("path"):
        path = inside(str(part["path"]), roots)
        content, filename = _of_file(path, f"/files/{name}/path"), filename or path.name
    elif part.get("content_b64") is not None:
        try:
            content = base64.b64decode(str(part["content_b64"]), validate=True)
        except binascii.Error as fault:
            raise invalid(f"/files/{name}/content_b64", str(fault)) from None
    else:
        given = part.get("content", part.get("data"))
        content = text_of(given).encode()
        kind = kind or (JSON if isinstance(given, (Mapping, list)) else "")
    filename = filename or name
    kind = kind or mimetypes.guess_type(filename)[0] or UNKNOWN
    if not (kind.isascii() and kind.isprintable()):
        raise invalid(f"/files/{name}/content_type", "is no media type")
    return _Part(name=name, content=content, filename=filename, media_type=kind)


def _of_file(path: Path, place: str) -> Stored:
    if not path.is_file():
        raise invalid(place, "there is no such file")

    async def read() -> AsyncIterator[bytes]:
        with path.open("rb") as file:
            async for chunk in chunks_of(file):
                yield chunk

    return Stored(size=path.stat().st_size, read=read)


def _multipart(parts: list[_Part]) -> tuple[bytes | Streamed, str]:
    """The parts as one body; it is made in memory unless a part lies elsewhere."""
    boundary = secrets.token_hex(16)
    pieces: list[bytes | Stored] = []
    for part in parts:
        pieces += [f"--{boundary}\r\n".encode() + part.head, part.content, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    made = tuple(piece for piece in pieces if isinstance(piece, bytes))
    whole = b"".join(made) if len(made) == len(pieces) else Streamed(tuple(pieces))
    return whole, f"multipart/form-data; boundary={boundary}"
