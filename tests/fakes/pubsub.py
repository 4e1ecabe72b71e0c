"""A small Pub/Sub in a process of its own: what the real one does with messages and their acks.

A subscription with the label `second` has seconds of another length (`"0.02"`), so that tests need
not wait for deadlines whose least is ten of them.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import empty_pb2
from google.pubsub_v1 import types

from noetl.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

EARLY_S = 0.05
"""A pull is answered so long before its deadline."""
LATE_S = 20


class Desk:
    """What tests do at an emulator: make topics and subscriptions, publish."""

    def __init__(self, host: str) -> None:
        self._channel = grpc.aio.insecure_channel(host)

    async def ask(self, method: str, request: Any, answer: Any) -> Any:
        """One question to the emulator."""
        call = self._channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=type(request).serialize,
            response_deserializer=getattr(answer, "deserialize", None) or answer.FromString,
        )
        return await call(request, timeout=LATE_S)

    async def subscription(self, name: str, *, second: str = "1", **more: Any) -> str:
        """A topic of that name with one subscription; its whole name."""
        topic = f"projects/demo/topics/{name}"
        path = f"projects/demo/subscriptions/{name}"
        await self.ask("Publisher/CreateTopic", types.Topic(name=topic), types.Topic)
        made = types.Subscription(name=path, topic=topic, labels={"second": second}, **more)
        await self.ask("Subscriber/CreateSubscription", made, types.Subscription)
        return path

    async def publish(self, name: str, *messages: Any) -> None:
        """Messages for the topic of that name."""
        request = types.PublishRequest(
            topic=f"projects/demo/topics/{name}", messages=list(messages)
        )
        await self.ask("Publisher/Publish", request, types.PublishResponse)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


# ---------------------------------------------------------------------------- the other process


@dataclass(eq=False)
class Kept:
    """One message of a subscription."""

    message: Any
    attempts: int = 0
    ack_id: str = ""
    due: float = 0.0


@dataclass
class Box:
    """One subscription."""

    about: Any
    kept: list[Kept] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def second(self) -> float:
        return float(self.about.labels.get("second") or 1)

    @property
    def most(self) -> int:
        return int(self.about.dead_letter_policy.max_delivery_attempts)

    def back(self, kept: Kept) -> None:
        """It is to be delivered again, and with it those of its key that came after it."""
        kept.ack_id = ""
        key = kept.message.ordering_key
        if key and self.about.enable_message_ordering:
            for other in self.kept[self.kept.index(kept) + 1 :]:
                if other.message.ordering_key == key:
                    other.ack_id = ""
        self.changed.set()

    def take(self, most: int, now: float, ids: Iterator[int]) -> list[Any]:
        """Deliver what nobody holds."""
        for kept in [kept for kept in self.kept if kept.ack_id and kept.due <= now]:
            if kept.ack_id:
                self.back(kept)
        if self.most:
            self.kept = [kept for kept in self.kept if kept.ack_id or kept.attempts < self.most]
        busy = {kept.message.ordering_key for kept in self.kept if kept.ack_id}
        found = []
        for kept in self.kept:
            key = kept.message.ordering_key if self.about.enable_message_ordering else ""
            if kept.ack_id or (key and key in busy) or len(found) >= most:
                continue
            kept.attempts += 1
            kept.ack_id = f"ack-{next(ids)}"
            kept.due = now + self.about.ack_deadline_seconds * self.second
            attempt = kept.attempts if self.most else 0
            found.append(
                types.ReceivedMessage(
                    ack_id=kept.ack_id, message=kept.message, delivery_attempt=attempt
                )
            )
        return found

    def held(self, ack_ids: Any) -> list[Kept]:
        """Messages that these ids still hold."""
        wanted = set(ack_ids)
        return [kept for kept in self.kept if kept.ack_id in wanted]


class Service:
    """The methods of the two services."""

    def __init__(self) -> None:
        self._topics: dict[str, list[Box]] = {}
        self._boxes: dict[str, Box] = {}
        self._ids = itertools.count(1)

    async def create_topic(self, request: Any, _context: Any) -> Any:
        self._topics[request.name] = []
        return request

    async def publish(self, request: Any, context: Any) -> Any:
        boxes = self._topics.get(request.topic)
        if boxes is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such topic")
        names = []
        for message in request.messages:
            message.message_id = str(next(self._ids))
            message.publish_time = SystemClock().now()
            names.append(message.message_id)
            for box in boxes:
                box.kept.append(Kept(message))
                box.changed.set()
        return types.PublishResponse(message_ids=names)

    async def create_subscription(self, request: Any, _context: Any) -> Any:
        request.ack_deadline_seconds = request.ack_deadline_seconds or 10
        self._boxes[request.name] = box = Box(request)
        self._topics[request.topic].append(box)
        return request

    async def get_subscription(self, request: Any, context: Any) -> Any:
        return (await self._box(request.subscription, context)).about

    async def pull(self, request: Any, context: Any) -> Any:
        box = await self._box(request.subscription, context)
        loop = asyncio.get_running_loop()
        left = context.time_remaining()
        end = loop.time() + (left if left is not None else 90) - EARLY_S
        while True:
            box.changed.clear()
            found = box.take(request.max_messages, loop.time(), self._ids)
            if found or request.return_immediately or loop.time() >= end:
                return types.PullResponse(received_messages=found)
            until = min([kept.due for kept in box.kept if kept.ack_id] + [end])
            try:
                async with asyncio.timeout_at(until):
                    await box.changed.wait()
            except TimeoutError:
                continue

    async def acknowledge(self, request: Any, context: Any) -> Any:
        box = await self._box(request.subscription, context)
        gone = box.held(request.ack_ids)
        box.kept = [kept for kept in box.kept if kept not in gone]
        box.changed.set()
        return empty_pb2.Empty()

    async def modify(self, request: Any, context: Any) -> Any:
        box = await self._box(request.subscription, context)
        now = asyncio.get_running_loop().time()
        for kept in box.held(request.ack_ids):
            kept.due = now + request.ack_deadline_seconds * box.second
            if not request.ack_deadline_seconds:
                box.back(kept)
        box.changed.set()
        return empty_pb2.Empty()

    async def _box(self, name: str, context: Any) -> Box:
        found = self._boxes.get(name)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        return found

    def handlers(self) -> list[Any]:
        """The methods by their names on the wire."""
        rows = (
            ("Publisher", "CreateTopic", self.create_topic, types.Topic),
            ("Publisher", "Publish", self.publish, types.PublishRequest),
            ("Subscriber", "CreateSubscription", self.create_subscription, types.Subscription),
            ("Subscriber", "GetSubscription", self.get_subscription, types.GetSubscriptionRequest),
            ("Subscriber", "Pull", self.pull, types.PullRequest),
            ("Subscriber", "Acknowledge", self.acknowledge, types.AcknowledgeRequest),
            ("Subscriber", "ModifyAckDeadline", self.modify, types.ModifyAckDeadlineRequest),
        )
        services: dict[str, dict[str, Any]] = {}
        for service, method, call, request in rows:
            services.setdefault(service, {})[method] = grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=request.deserialize,
                response_serializer=lambda made: (
                    made.SerializeToString()
                    if isinstance(made, empty_pb2.Empty)
                    else type(made).serialize(made)
                ),
            )
        return [
            grpc.method_handlers_generic_handler(f"google.pubsub.v1.{name}", methods)
            for name, methods in services.items()
        ]


async def main() -> None:
    """Serve until nobody listens to us any more."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(Service().handlers())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
