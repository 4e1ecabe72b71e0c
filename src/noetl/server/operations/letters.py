"""The message that stands for the events of a commit: where it goes, and as much as may be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.bus import subjects
from noetl.bus.base import Letter
from noetl.engine.events import CommandClaimed
from noetl.engine.rows import to_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.store.base import Executions, Outgoing

MOST_BYTES: Final = 256 * 1024
"""A larger message carries its events without what they hold, readers fetch that by `seq`; one
that is then still larger than twice as much carries none."""
SHARD: Final = 0
_BODIES: Final = ("context", "result")
_encode: Final = msgspec.json.Encoder().encode


def is_told(recorded: Recorded) -> bool:
    """Claims are between the server and its workers."""
    return not isinstance(recorded.event, CommandClaimed)


async def letter_of(
    executions: Executions, outgoing: Outgoing, events: Sequence[Recorded], most: int = MOST_BYTES
) -> Letter:
    """The message of an outgoing publication and its events."""
    about = outgoing.payload
    tenant, organization = about.get("tenant_id"), about.get("organization_id")
    if tenant is None or organization is None:
        row = await executions.get(outgoing.execution_id)
        tenant = row.tenant_id if row else "default"
        organization = row.organization_id if row else "default"
    request = about.get("request_id")
    return Letter(
        subjects.events(tenant, organization, outgoing.execution_id, SHARD),
        _body(outgoing, events, most),
        events[-1].event_id,
        ((subjects.REQUEST_HEADER, request),) if request else (),
    )


def _body(outgoing: Outgoing, events: Sequence[Recorded], most: int) -> bytes:
    rows = [to_row(each) for each in events if is_told(each)]
    body: dict[str, Any] = {
        "execution_id": outgoing.execution_id,
        "first_seq": outgoing.payload["first_seq"],
        "last_seq": outgoing.payload["last_seq"],
        "events": rows,
    }
    if len(full := _encode(body)) <= most:
        return full
    short = [{key: row[key] for key in row if key not in _BODIES} for row in rows]
    stripped = _encode(body | {"events": short, "is_stripped": True})
    if len(stripped) <= 2 * most:
        return stripped
    return _encode(body | {"events": [], "is_stripped": True})
