"""One thing that was done, and how long it took."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from noetl.telemetry.traces.context import Context  # noqa: TC001 - a field of a struct

Attribute: TypeAlias = str | int | float | bool

INTERNAL: Final = 1
SERVER: Final = 2
CLIENT: Final = 3
PRODUCER: Final = 4
CONSUMER: Final = 5


class Span(msgspec.Struct):
    """What is told of it: names, ids and times, never what the user's data holds."""

    name: str
    context: Context
    start_ns: int
    parent_id: str = ""
    """Empty for the first of a trace."""
    kind: int = INTERNAL
    end_ns: int = 0
    state: str = ""
    """What other systems have written beside the trace."""
    error: str = ""
    """The code of what went wrong."""
    attributes: dict[str, Attribute] = {}
