"""Messages of streams, and questions to whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from nats.errors import NoRespondersError
from nats.js.errors import NoStreamResponseError

from noetl.clock import rfc3339
from noetl.sources.base import body_of, bytes_of, lowered
from noetl.sources.nats import NatsSource
from noetl.tools.base import ToolError, remedied
from noetl.tools.nats.places import SYSTEM, invalid, stream_of, subject_of, token_of

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.client import JetStreamContext

    from noetl.clock import Clock
    from noetl.dsl.tasks import Nats
    from noetl.tools.base import ToolContext

MSG_ID: Final = "Nats-Msg-Id"
_MOST_BATCH: Final = 1000
_AT_ONCE: Final = 64
_OURS: Final = "nats-"


async def publish(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Publish a message once: the same visit of a task has the same id."""
    subject = subject_of(config.subject, ctx)
    msg_id = config.msg_id or ctx.idempotency_key
    return await _published(js, subject, config.data, config.headers, msg_id)


async def publish_many(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Publish messages together; for tasks of the system pool."""
    if getattr(ctx, "pool", "") != SYSTEM:
        message = "js_publish_batch is for the system pool; use js_publish in a loop"
        raise ToolError("auth", "platform_resource", message)
    items = _items(config)

    async def one(place: int, item: Mapping[str, Any]) -> dict[str, Any]:
        subject = subject_of(item.get("subject") or config.subject, ctx)
        msg_id = str(item.get("msg_id") or f"{ctx.idempotency_key}/{place}")
        return await _published(js, subject, item.get("data"), item.get("headers") or {}, msg_id)

    done: list[dict[str, Any]] = []
    for start in range(0, len(items), _AT_ONCE):
        part = enumerate(items[start : start + _AT_ONCE], start)
        done += await asyncio.gather(*(one(place, item) for place, item in part))
    duplicates = sum(1 for each in done if each["duplicate"])
    return {"published": len(done) - duplicates, "duplicates": duplicates, "results": done}


def _items(config: Nats) -> list[Mapping[str, Any]]:
    items = config.messages
    if not isinstance(items, list | tuple) or not all(isinstance(i, Mapping) for i in items):
        raise invalid("messages", "is a list of {subject, data, headers, msg_id}")
    if len(items) > _MOST_BATCH:
        raise invalid("messages", f"holds {_MOST_BATCH} messages at most")
    return list(items)


async def _published(
    js: JetStreamContext, subject: str, data: object, headers: Mapping[str, Any], msg_id: str
) -> dict[str, Any]:
    sent = {**_headers(headers), MSG_ID: msg_id}
    try:
        done = await js.publish(subject, bytes_of(data), headers=sent)
    except NoStreamResponseError:
        message = f"no stream of the broker takes the subject {subject}"
        raise remedied(ToolError("not_found", "stream_not_found", message)) from None
    return {"stream": done.stream, "seq": done.seq, "duplicate": bool(done.duplicate)}


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    made = {}
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if name.lower().startswith(_OURS) or any(sign in f"{name}{text}" for sign in "\r\n"):
            raise invalid("headers", f"`{name}` cannot be sent")
        made[name] = text
    return made


async def consume(config: Nats, ctx: ToolContext, client: Client, clock: Clock) -> dict[str, Any]:
    """A bounded batch of a durable consumer.

    `ack: true` settles the messages when the report of this command was stored.
    """
    stream, consumer = stream_of(config.stream, ctx), token_of(config.consumer, "consumer")
    source = await NatsSource.open(client, stream, consumer, clock)
    found = await source.poll(int(config.batch), int(config.timeout_ms))
    mode = str(config.ack).lower()
    ack_ids = [str(message.ack_id) for message in found]
    messages = [message.as_json() for message in found]
    if mode != "defer":
        for message in messages:
            message.pop("ack_id", None)
    return {
        "status": "success",
        "stream": stream,
        "consumer": consumer,
        "count": len(messages),
        "messages": messages,
        "acked": mode == "true",
        "ack_ids": ack_ids,
    }


async def message(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """One message of a stream: by its number, the last one, or the last one of a subject."""
    stream = stream_of(config.stream, ctx)
    subject = None if config.subject is None else subject_of(config.subject, ctx)
    if config.seq is not None:
        found = await js.get_msg(stream, seq=int(config.seq))
    elif subject is not None:
        found = await js.get_last_msg(stream, subject)
    elif config.last:
        about = await js.stream_info(stream)
        if not about.state.messages:
            message = f"the stream {stream} is empty"
            raise remedied(ToolError("not_found", "message_not_found", message))
        found = await js.get_msg(stream, seq=about.state.last_seq)
    else:
        raise invalid("seq", "name a message: `seq`, `last: true` or `subject`")
    return {
        "status": "success",
        "stream": stream,
        "seq": found.seq,
        "subject": found.subject,
        "headers": lowered((found.headers or {}).items()),
        "time": None if found.time is None else rfc3339(found.time),
        **body_of(found.data or b""),
    }


async def info(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """What a stream holds."""
    found = await js.stream_info(stream_of(config.stream, ctx))
    state = found.state
    return {
        "status": "success",
        "stream": found.config.name,
        "subjects": list(found.config.subjects or ()),
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "consumers": state.consumer_count,
    }


async def ask(config: Nats, ctx: ToolContext, client: Client) -> dict[str, Any]:
    """Ask whoever listens, and wait for the first answer."""
    subject = subject_of(config.subject, ctx)
    try:
        answer = await client.request(
            subject,
            bytes_of(config.data),
            timeout=int(config.timeout_ms) / 1000,
            headers=_headers(config.headers) or None,
        )
    except NoRespondersError:
        message = f"nobody listens to {subject}"
        raise remedied(ToolError("connection", "no_responders", message)) from None
    headers = lowered((answer.headers or {}).items())
    return {"status": "success", "subject": subject, "headers": headers, **body_of(answer.data)}
