"""Messages of the API as plain data, and plain data as messages."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from noetl.api.models import decoder_of
from noetl.errors import NoetlError

T = TypeVar("T")


class Unreadable(NoetlError):
    """Bytes that are not the message that they should be."""

    code = "bad_json"
    status = 422


def plain(message: msgspec.Struct) -> dict[str, Any]:
    """A message as the maps, lists and texts that JSON has."""
    made: dict[str, Any] = msgspec.to_builtins(message)
    return made


def read(data: bytes, kind: type[T]) -> T:
    """A message of the API from its JSON."""
    try:
        return decoder_of(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Unreadable(f"not the JSON of {kind.__name__}: {fault}") from fault
