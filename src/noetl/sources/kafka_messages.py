"""Records of Kafka as messages, and the ids that settle them."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from aiokafka import TopicPartition  # type: ignore[import-untyped] # it has no types

from noetl.sources.base import PolledMessage, SourceError, body_of, lowered

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

_ID: Final = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,10}):(\d{1,19})")


def place_of_id(ack_id: str) -> tuple[TopicPartition, int]:
    """The partition and the offset of an id; `SourceError` for what is no such id."""
    found = _ID.fullmatch(ack_id)
    if found is None:
        message = f"`{ack_id[:100]}` does not name a message: an id is what a poll returned"
        raise SourceError("config", "invalid_config", message)
    return TopicPartition(found[1], int(found[2])), int(found[3])


def part_of(record: ConsumerRecord) -> TopicPartition:
    """The partition of a record."""
    return TopicPartition(record.topic, record.partition)


def message_of(record: ConsumerRecord, received: str) -> PolledMessage:
    """A record as playbooks see it."""
    body = record.value or b""
    pairs = [(str(name), text_of(value or b"")) for name, value in record.headers]
    key = None if record.key is None else text_of(record.key)
    place = f"{record.topic}:{record.partition}:{record.offset}"
    return PolledMessage(
        id=place,
        headers=lowered(pairs),
        attributes=dict(pairs),
        metadata={
            "source": "kafka",
            "received_at": received,
            "size_bytes": len(body),
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": key,
            "timestamp": record.timestamp,
        },
        ordering_key=str(record.partition) if key is None else key,
        ack_id=place,
        **body_of(body),
    )


def text_of(raw: bytes) -> str:
    """Bytes as text; those that are no UTF-8, in base64."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode("ascii")
