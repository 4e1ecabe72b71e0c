"""What JSON may not hold, found before anything is made of it; and bodies that come packed.

A decoder takes the last of two equal keys in silence, and the database refuses what JSON allows.
The look costs a scan of the bytes; only bytes that look suspicious are parsed a second time.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

import zstandard

from noetl.edge.errors import BadJson, TooLarge, Unacceptable

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST: Final = 64
MOST_RATIO: Final = 20
_NUL: Final = b"\\u0000"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[{\]}]")
_OPENING: Final = (b"[", b"{")
_WINDOW_GZIP: Final = 31
_WINDOW_ZSTD: Final = 8 * 1024 * 1024
"""What a decoder must be able to remember, and no more (RFC 9659)."""
_ZSTD_STEP: Final = 64


class _Twice(dict[str, Any]):
    """An object that has a key twice."""

    key = ""


def must_be_plain(data: bytes) -> None:
    """Refuse a body that is too deep, or has NUL in a text, NaN or a key twice."""
    if data.count(b"{") + data.count(b"[") > DEEPEST and _depth(data) > DEEPEST:
        raise _bad("the body is nested more than 64 deep", "")
    twice: list[str] = []
    parsed = _parsed(data, twice)
    if not twice and _NUL not in data:
        return
    for pointer, value in _walked(parsed, ""):
        if isinstance(value, _Twice):
            raise _bad(f"the key {value.key!r} stands twice", f"{pointer}/{_escaped(value.key)}")
        if isinstance(value, str) and "\0" in value:
            raise _bad("a text holds the character NUL", pointer)


def not_json(data: bytes, fault: Exception) -> BadJson | Unacceptable:
    """Why a decoder could not read a body."""
    try:
        _parsed(data, [])
    except Unacceptable as refusal:
        return refusal
    return BadJson(f"the body is not JSON: {fault}")


def _parsed(data: bytes, twice: list[str]) -> object:
    """The body, keys that stand twice noted; a mistake is left to the decoder of the route."""
    found: list[str] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        return made if len(made) == len(pairs) else _marked(pairs, twice)

    try:
        return json.loads(data, object_pairs_hook=made, parse_constant=found.append)
    except RecursionError:
        raise _bad("the body is nested too deeply", "") from None
    except ValueError:
        return None
    finally:
        if found:
            raise _bad(f"{found[0]} is not a number of JSON", "")


def _marked(pairs: list[tuple[str, Any]], twice: list[str]) -> _Twice:
    marked = _Twice(pairs)
    seen: set[str] = set()
    marked.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value] # a set's way to say "not yet"
    twice.append(marked.key)
    return marked


def _walked(value: object, pointer: str) -> Iterator[tuple[str, object]]:
    yield pointer, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{pointer}/{_escaped(key)}", key
            yield from _walked(item, f"{pointer}/{_escaped(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walked(item, f"{pointer}/{index}")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _depth(data: bytes) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", data)):
        if bracket in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


def _bad(message: str, pointer: str) -> Unacceptable:
    return Unacceptable(
        message, code="bad_value", errors=({"pointer": pointer, "code": "bad_value"},)
    )


class Coding(Protocol):
    """One way in which a body is packed."""

    is_complete: bool
    """All that was begun has ended, so the body may end here."""

    def expand(self, part: bytes, room: int) -> Iterator[bytes]:
        """What a part expands to, in pieces; asked for no more once they are beyond the room."""


class Gzip:
    """Members of gzip, one after the other."""

    def __init__(self) -> None:
        self.is_complete = False
        self._inflate = zlib.decompressobj(_WINDOW_GZIP)

    def expand(self, part: bytes, room: int) -> Iterator[bytes]:
        """What a part expands to."""
        while part:
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(_WINDOW_GZIP)
            try:
                made = self._inflate.decompress(part, room + 1)
            except zlib.error as fault:
                raise BadJson(f"the body is not gzip: {fault}") from None
            self.is_complete = self._inflate.eof
            room -= len(made)
            yield made
            part = self._inflate.unused_data or self._inflate.unconsumed_tail


class Zstd:
    """Frames of zstd, one after the other.

    A block of a few bytes may expand to 128 KiB, and the decoder takes no limit: it is fed so
    little at a time that a bomb is noticed within some blocks.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_ZSTD)
        self._frame = self._decoder.decompressobj()

    def expand(self, part: bytes, room: int) -> Iterator[bytes]:
        """What a part expands to."""
        del room  # the caller asks for no more when it is used up
        for start in range(0, len(part), _ZSTD_STEP):
            step = part[start : start + _ZSTD_STEP]
            while step:
                if self._frame.eof:
                    self._frame = self._decoder.decompressobj()
                try:
                    yield self._frame.decompress(step)
                except zstandard.ZstdError as fault:
                    raise BadJson(f"the body is not zstd: {fault}") from None
                step = self._frame.unused_data
                self.is_complete = self._frame.eof


CODINGS: Final[dict[str, type[Coding]]] = {"gzip": Gzip, "zstd": Zstd}
"""By the word of the header."""


class Unpacking:
    """Expands a packed body while it comes, and stops at a bomb."""

    def __init__(self, most: int, coding: str = "gzip") -> None:
        self._most = most
        self._word = coding
        self._coding = CODINGS[coding]()
        self._packed = 0
        self._size = 0

    def feed(self, part: bytes) -> bytes:
        """The bytes that a part expands to."""
        self._packed += len(part)
        room = min(self._most, self._packed * MOST_RATIO) - self._size
        pieces = []
        for piece in self._coding.expand(part, room):
            room -= len(piece)
            if room < 0:
                raise TooLarge(f"the body expands beyond {MOST_RATIO}:1 or {self._most} bytes")
            self._size += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def end(self) -> None:
        """Refuse a body that was cut."""
        if not self._coding.is_complete:
            raise BadJson(f"the {self._word} body is not complete")
