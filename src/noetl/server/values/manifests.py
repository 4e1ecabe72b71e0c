"""Stored values that are read as one: their bytes go through, part by part.

Only `merge` holds a part in memory as a whole, one at a time: which keys a later part replaces is
not known before it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from noetl.blobs.base import BlobDamaged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from noetl.api.results import Strategy

    Part: TypeAlias = Callable[[], AsyncIterator[bytes]]

_BLANK: Final = b" \t\r\n"
_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def joined(strategy: Strategy, parts: Sequence[Part]) -> AsyncIterator[bytes]:
    """The bytes that the parts are together."""
    if strategy == "append":
        return _appended(parts)
    if strategy == "merge":
        return _merged(parts)
    return _concatenated(parts if strategy == "concat" else parts[-1:])


async def _concatenated(parts: Sequence[Part]) -> AsyncIterator[bytes]:
    for part in parts:
        async for chunk in part():
            yield chunk


async def _appended(parts: Sequence[Part]) -> AsyncIterator[bytes]:
    """One list of the items of all parts."""
    opening = b"["
    for part in parts:
        async for chunk in _items(part):
            yield opening + chunk
            opening = b""
        opening = opening or b","
    yield b"]" if opening == b"," else b"[]"


async def _items(part: Part) -> AsyncIterator[bytes]:
    """The inside of a list; anything else as it is.

    What may be the end of the list is held back until more has come.
    """
    held, is_list, is_begun = b"", False, False
    async for chunk in part():
        data = held + chunk
        if not is_begun:
            data = data.lstrip(_BLANK)
            if not data:
                continue
            is_list, is_begun = data[:1] == b"[", True
            data = data[1:] if is_list else data
        if is_list and not held.strip(_BLANK):
            data = data.lstrip(_BLANK)
        kept = data.rstrip(_BLANK)
        held = data[max(0, len(kept) - 1) :]
        if len(kept) > 1:
            yield kept[:-1]
    last = held.rstrip(_BLANK)
    if not is_begun or (is_list and last != b"]"):
        raise BlobDamaged("a part of the manifest is not JSON")
    if not is_list and last:
        yield last


async def _merged(parts: Sequence[Part]) -> AsyncIterator[bytes]:
    """One object with the keys of all parts; from the last to the first, as the last one wins."""
    seen: set[str] = set()
    opening = b"{"
    for part in reversed(parts):
        data = b"".join([chunk async for chunk in part()])
        try:
            members = _members.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BlobDamaged("a part of the manifest is no JSON object") from None
        for key, value in members.items():
            if key not in seen:
                seen.add(key)
                yield opening + _encode(key) + b":" + bytes(value)
                opening = b","
    yield b"}" if seen else b"{}"
