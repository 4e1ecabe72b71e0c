"""One recorded event as one line of JSON: the form of export files and of published messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.engine.rows import InvalidRow, from_row, to_row

if TYPE_CHECKING:
    from noetl.engine.events import Recorded

_encode: Final = msgspec.json.Encoder().encode
_rows: Final = msgspec.json.Decoder(dict[str, Any])


def encode(recorded: Recorded) -> bytes:
    """The row of an event, without a line end."""
    return _encode(to_row(recorded))


def decode(line: bytes) -> Recorded:
    """The event that a line holds; `InvalidRow` when it holds none."""
    try:
        row = _rows.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRow(f"the line is not a row of an event: {error}") from error
    return from_row(row)
