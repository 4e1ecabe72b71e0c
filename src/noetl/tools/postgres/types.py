"""How values of PostgreSQL are read and written: JSON has a form for each.

What has none of its own is the text that the server writes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import unhexlify
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Escaping, Format
from psycopg.types.array import register_array
from psycopg.types.json import Jsonb, set_json_loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from psycopg.abc import Buffer

_ALIKE: Final = ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "json", "jsonb")
_KINDS: Final = {
    "int2": "int", "int4": "int", "int8": "int", "oid": "int", "float4": "float",
    "float8": "float", "bool": "bool", "json": "json", "jsonb": "json",
}  # fmt: skip
_HEX: Final = b"\\x"


class _Moment(Loader):
    """A point in time in RFC 3339; one without a zone is UTC, as everywhere in NoETL."""

    def load(self, data: Buffer) -> str:
        return _moment(bytes(data).decode())


def moments(texts: Iterable[str | None]) -> list[str | None]:
    """Many points in time at once; nearly all are in UTC, the zone of the session."""
    return [
        text
        and (
            f"{text[:10]}T{text[11:-3]}Z"
            if text[-3:] == "+00" and text[10] == " "
            else _moment(text)
        )
        for text in texts
    ]


def _moment(text: str) -> str:
    day, space, time = text.partition(" ")
    if not space or time.endswith("BC"):
        return text  # infinity, or before our era: no form in RFC 3339
    zone = max(time.find("+"), time.find("-"))
    if zone < 0:
        return f"{day}T{time}Z"
    clock, offset = time[:zone], time[zone:]
    if offset == "+00":
        return f"{day}T{clock}Z"
    return f"{day}T{clock}{offset}" if ":" in offset else f"{day}T{clock}{offset}:00"


class _Bytes(Loader):
    def load(self, data: Buffer) -> str:
        raw = bytes(data)
        plain = unhexlify(raw[2:]) if raw[:2] == _HEX else Escaping().unescape_bytea(raw)
        return b64encode(plain).decode("ascii")


def _adapters() -> AdaptersMap:
    known = psycopg.adapters
    made = AdaptersMap(known)
    text = known.get_loader(0, Format.TEXT)
    if text is None:
        raise RuntimeError("psycopg has no loader of texts")
    for info in known.types:
        if info.name not in _ALIKE:
            made.register_loader(info.oid, text)
    for name, loader in (("timestamp", _Moment), ("timestamptz", _Moment), ("bytea", _Bytes)):
        made.register_loader(name, loader)
    for info in known.types:
        if info.array_oid:
            register_array(info, _Context(made))
    set_json_loads(json.loads, _Context(made))
    return made


class _Context:
    """What psycopg asks for adapters."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


CONTEXT: Final = _Context(_adapters())
"""The adapters of every connection of ours."""


KINDS: Final[Mapping[int, str]] = {
    **{info.array_oid: "json" for info in psycopg.adapters.types if info.array_oid},
    **{info.oid: _KINDS[info.name] for info in psycopg.adapters.types if info.name in _KINDS},
}
"""What columns hold, by the number of their type; those of any other type hold texts."""
TEXT_OID: Final = psycopg.adapters.types["text"].oid
MOMENTS: Final = frozenset(
    psycopg.adapters.types[name].oid for name in ("timestamp", "timestamptz")
)


def bindable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value as the driver binds it: maps, and lists that are no arrays, are JSON."""
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list) and not _is_array(value):
        return Jsonb(value)
    return value


def _is_array(values: list[Any]) -> bool:
    """Whether a list has one kind of values and no maps."""
    kinds = {type(value) for value in values if value is not None}
    if list in kinds:
        return kinds == {list} and all(_is_array(value) for value in values if value)
    return len(kinds) <= 1 and dict not in kinds
