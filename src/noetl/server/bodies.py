"""What JSON may not hold, found before anything is made of it; and bodies that come packed.

A decoder takes the last of two equal keys in silence, and the database refuses what JSON allows.
The look costs a scan of the bytes; only bytes that look suspicious are parsed a second time.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Final

from noetl.server.errors import BadJson, TooLarge, Unacceptable

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST: Final = 64
MOST_RATIO: Final = 20
_NUL: Final = b"\\u0000"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[{\]}]")
_OPENING: Final = (b"[", b"{")
_WINDOW_GZIP: Final = 31


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


class Unpacking:
    """Expands a gzip body while it comes, and stops at a bomb."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inflate = zlib.decompressobj(_WINDOW_GZIP)
        self._packed = 0
        self._size = 0

    def feed(self, part: bytes) -> bytes:
        """The bytes that a part expands to."""
        self._packed += len(part)
        room = min(self._most, self._packed * MOST_RATIO) - self._size
        try:
            made = self._inflate.decompress(part, room + 1)
        except zlib.error as fault:
            raise BadJson(f"the body is not gzip: {fault}") from None
        if len(made) > room:
            raise TooLarge(f"the body expands beyond {MOST_RATIO}:1 or {self._most} bytes")
        self._size += len(made)
        return made

    def end(self) -> None:
        """Refuse a body that was cut."""
        if not self._inflate.eof:
            raise BadJson("the gzip body is not complete")
