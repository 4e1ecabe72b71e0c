"""References: the names of stored values, and what is told of a value so that nobody fetches it.

Pure: equal values have equal names and equal summaries, so a repeated put is the same object and a
replayed decision sees the same facts.
"""

from __future__ import annotations

import codecs
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from noetl.blobs.naming import SCHEME, InvalidRef, Name, parsed, segment
from noetl.dsl.views import Reference

EXTRACTED_BYTES: Final = 8 * 1024
PREVIEW_BYTES: Final = 1024
_PART_BYTES: Final = 512
_DEPTH: Final = 8
_ROOM_BYTES: Final = 64
"""With less room than this the rest of a long map is not looked at."""
_FIRST_ROWS: Final = 3
_encode: Final = msgspec.json.Encoder().encode


def id_of(data: bytes) -> str:
    """The name of bytes by their content."""
    return sha256(data).hexdigest()[:32]


def ref_of(
    execution_id: str,
    step: str,
    id: str,  # noqa: A002 - the word of the grammar
    form: Literal["result", "manifest"] = "result",
) -> str:
    """The reference of a step's stored value, or of a list of such."""
    name = "/".join(segment(part) for part in step.split("/"))
    return f"{SCHEME}execution/{segment(execution_id)}/{form}/{name}/{segment(id)}"


def key_of(ref: str) -> str:
    """The blob key of a reference: its path, each segment in its one encoded form."""
    return _of_run(ref).key


def execution_of(ref: str) -> str:
    """The run that a stored value belongs to."""
    return _of_run(ref).execution_id


def reference_of(
    ref: str, data: bytes, value: object = None, *, store: str, media_type: str = "application/json"
) -> Reference:
    """All that an event says of a stored value."""
    return Reference(
        ref=ref,
        store=store,
        size=len(data),
        sha256=sha256(data).hexdigest(),
        media_type=media_type,
        total=len(value) if isinstance(value, list) else None,
        extracted=extracted(value),
        preview=preview(data),
    )


def extracted(value: object) -> dict[str, Any]:
    """What is known of a value without a fetch, at most 8 KiB as JSON.

    A key of the value is here with its exact value or not at all: a reader may take what it finds.
    What the value does not say itself is added: `row_count` and `columns` of its rows, the lengths
    of its lists (`_lengths`) and its first rows (`_rows`).
    """
    summary = _Summary()
    rows = value
    if isinstance(value, Mapping):
        summary.copy(value)
        rows = value.get("rows", value.get("messages"))
    if isinstance(rows, list):
        summary.of_rows(rows, own=value if isinstance(value, Mapping) else {})
    if isinstance(value, Mapping):
        lengths = {str(key): len(part) for key, part in value.items() if isinstance(part, list)}
        summary.add("_lengths", lengths, own=value)
    return summary.facts


def preview(data: bytes, most: int = PREVIEW_BYTES) -> str:
    """The beginning of a value for people, at most 1 KiB of text, or what they asked for."""
    start = data[:most]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start, final=len(data) <= len(start))
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return text
    return "base64:" + b64encode(data[: max(0, most * 3 // 4 - 6)]).decode()


class _Summary:
    """Facts, as many as fit."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self._left = EXTRACTED_BYTES - len("{}")

    def add(self, key: str, fact: object, own: Mapping[Any, Any], limit: int | None = None) -> bool:
        """Add a fact of ours, unless the value has its own of that name or there is no room."""
        return key not in own and self._take(key, fact, limit)

    def copy(self, value: Mapping[Any, Any]) -> None:
        """Take over what is small; what readers ask for most comes first."""
        first = [key for key in ("row_count", "columns") if key in value]
        for key in (*first, *value):
            if self._left < _ROOM_BYTES:
                return
            if isinstance(key, str) and key not in self.facts and _is_small(value[key], _DEPTH - 1):
                limit = None if key == "columns" else _PART_BYTES
                self._take(key, value[key], limit)

    def of_rows(self, rows: list[Any], own: Mapping[Any, Any]) -> None:
        """Number, columns and beginning of rows."""
        self.add("row_count", len(rows), own)
        if rows and isinstance(rows[0], Mapping):
            self.add("columns", [str(name) for name in rows[0]], own)
        for count in range(min(_FIRST_ROWS, len(rows)), 0, -1):
            if all(_is_small(row, _DEPTH - 2) for row in rows[:count]) and self.add(
                "_rows", rows[:count], own, EXTRACTED_BYTES // 2
            ):
                return

    def _take(self, key: str, fact: object, limit: int | None) -> bool:
        size = len(_encode(fact))
        whole = size + len(_encode(key)) + len(":,")
        if (limit is not None and size > limit) or whole > self._left:
            return False
        self.facts[key] = fact
        self._left -= whole
        return True


def _is_small(value: object, depth: int) -> bool:
    """Whether a value is worth measuring: not deep, and not long at a glance."""
    return _left_after(value, depth, EXTRACTED_BYTES) >= 0


def _left_after(value: object, depth: int, left: int) -> int:
    """What remains of a budget of characters; the look ends with the budget."""
    if isinstance(value, str):
        return left - len(value) - 1
    if not isinstance(value, (Mapping, list, tuple)):
        return left - 1
    if depth == 0 or len(value) > left:
        return -1
    for part in value.values() if isinstance(value, Mapping) else value:
        left = _left_after(part, depth - 1, left)
        if left < 0:
            return left
    return left - 1


def _of_run(ref: str) -> Name:
    """A reference of a run's value; the other forms are no names of blobs that tools may use."""
    name = parsed(ref)
    if name.form not in {"result", "manifest"}:
        raise InvalidRef(f"{ref[:80]!r} is not a reference of a run's value")
    return name
