"""One delivery of a message: what was decided for it, and what it becomes on its way."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.blobs.spool.item import Item, Keys, again, ref_of, sha256_of, spooled_at
from noetl.intake.dispatch import start_of
from noetl.intake.outcomes import Disposition
from noetl.sources.directives import Plan, resolve
from noetl.sources.ordering import downstream_of, lane_of
from noetl.sources.workloads import (
    MOST_BYTES,
    dedup_of,
    dedup_text,
    message_of,
    replay_dedup,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.clock import Clock
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.ids import Ids
    from noetl.intake.dispatch import Start
    from noetl.intake.outcomes import Settled


MOST_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The subscription whose messages these are."""

    subscription_id: str
    path: str
    spec: SubscriptionSpec
    version: int = 0
    max_deliver: int | None = None
    """How often its source delivers a message at most, where that is known."""
    retention_s: float | None = None
    """How long its source keeps a message, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A delivery that its sender has brought here: verified, planned, and with its keys."""

    message: Mapping[str, Any]
    """As it came, with every header that may be shown: what a playbook sees is decided here."""
    plan: Plan
    dedup: Mapping[str, Any]
    """`key` and `window_secs`, and where there is one `replay_key` and `replay_window_secs`."""
    is_paused: bool = False
    """Whether nothing of this subscription may run now: it waits here, or is sent back."""
    is_limited: bool = False
    """Whether there were too many of late, or are too many now."""


@dataclass(slots=True, kw_only=True)
class Delivery:
    """A message on its way."""

    message: dict[str, Any]
    """As its playbook sees it."""
    plan: Plan
    lane: str
    downstream: str
    recv_seq: str
    dedup: dict[str, Any]
    ack_id: str | None = None
    delivered: int = 1
    sent_at: datetime | None = None
    execution_id: str | None = None
    """The run that it is to become, when its sender waits here for the answer."""

    @property
    def message_id(self) -> str:
        """The same for every delivery."""
        return str(self.message["id"])

    @property
    def size_bytes(self) -> int:
        """The size of its body."""
        size = (self.message.get("metadata") or {}).get("size_bytes")
        return size if isinstance(size, int) else len(msgspec.json.encode(self.message.get("data")))

    @property
    def is_too_large(self) -> bool:
        """Whether nobody may be asked to run it."""
        return self.size_bytes > MOST_BYTES

    def settled(self, settle: Settled, outcome: str, **more: Any) -> Disposition:  # noqa: ANN401 - fields of it
        """What its source is to be told."""
        return Disposition(
            message_id=self.message_id, settle=settle, outcome=outcome, ack_id=self.ack_id, **more
        )


class Reruns:
    """Messages whose runs failed because something was away: each next run has a key of its own."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, int] = OrderedDict()

    def rename(self, delivery: Delivery) -> None:
        """Give a message that came again the key of its next run."""
        number = self._known.get(delivery.message_id)
        if number is not None:
            delivery.dedup["key"] += f"#r{number}"

    def note(self, delivery: Delivery) -> None:
        """Its run has failed."""
        self._known[delivery.message_id] = self._known.pop(delivery.message_id, 0) + 1
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, delivery: Delivery) -> None:
        """It needs no further run."""
        self._known.pop(delivery.message_id, None)


def received(
    listener: Listener, message: Mapping[str, Any], ids: Ids, headers: Mapping[str, Any] | None
) -> Delivery:
    """A message that has come: its place in the order, and its plan."""
    spec = listener.spec
    given = message.get("headers") or {}
    plan = resolve(spec, given if headers is None else headers)
    recv_seq = ids.new()
    about = message.get("metadata") or {}
    delivered = about.get("delivered") or about.get("deliveryAttempt") or 1
    return Delivery(
        message=message_of(spec, message),
        plan=plan,
        lane=lane_of(spec, message),
        downstream=downstream_of(spec, plan),
        recv_seq=recv_seq,
        dedup=dedup_of(spec, plan, str(message["id"]), recv_seq),
        ack_id=message.get("ack_id"),
        delivered=delivered if isinstance(delivered, int) else 1,
        sent_at=_moment(about.get("timestamp") or about.get("publishTime")),
    )


def pushed(listener: Listener, asked: Pushed, ids: Ids) -> Delivery:
    """A delivery that its sender has brought: its place in the order, and the id of its run."""
    spec, plan = listener.spec, asked.plan
    about = asked.message.get("metadata") or {}
    delivered = about.get("deliveryAttempt") or 1
    return Delivery(
        message=message_of(spec, asked.message),
        plan=plan,
        lane=lane_of(spec, asked.message),
        downstream=downstream_of(spec, plan),
        recv_seq=ids.new(),
        dedup=dict(asked.dedup),
        delivered=delivered if isinstance(delivered, int) else 1,
        sent_at=_moment(about.get("publishTime")),
        execution_id=ids.new(),
    )


def live_start(listener: Listener, delivery: Delivery) -> Start:
    """The run of a message that has just come."""
    ingress = {
        "source": listener.spec.source,
        "downstream": delivery.downstream,
        "recv_seq": delivery.recv_seq,
    }
    of = (listener.subscription_id, listener.path)
    if delivery.execution_id is None:
        return start_of(of, delivery.message, delivery.plan, delivery.dedup, ingress)
    ingress |= _pushed(delivery.message)
    made = start_of(of, delivery.message, delivery.plan, delivery.dedup, ingress)
    return _under(made, delivery.execution_id)


def _pushed(message: Mapping[str, Any]) -> dict[str, Any]:
    """Where a message was delivered to, and as what; nothing of one that was fetched."""
    about = message.get("metadata") or {}
    if about.get("mode") != "push":
        return {}
    return {name: about[name] for name in ("listener", "delivery_id", "replay_of") if name in about}


def replay_start(listener: Listener, item: Item) -> Start:
    """The run of a message that waited: its stored plan, whatever its headers say."""
    ingress = {
        "source": item.source,
        "downstream": item.downstream,
        "recv_seq": item.recv_seq,
        "spool_ref": item.ref,
        **_pushed(item.message),
    }
    of, plan = (listener.subscription_id, listener.path), Plan.from_json(item.plan)
    kept = {} if isinstance(item.dedup, msgspec.UnsetType) else msgspec.to_builtins(item.dedup)
    execution_id = kept.pop("execution_id", None)
    dedup = replay_dedup(item.dispatch_key, kept=kept or None)
    made = start_of(of, item.message, plan, dedup, ingress)
    is_first = bool(kept) and dedup == kept
    return _under(made, execution_id) if is_first and execution_id else made


def _under(start: Start, execution_id: str) -> Start:
    """A start whose run has an id: asked for twice it is one run, however much later."""
    return msgspec.structs.replace(start, execution_id=execution_id, resource_kind="playbook")


def item_of(
    listener: Listener, delivery: Delivery, reason: str, clock: Clock, *, is_new_run: bool = False
) -> Item:
    """A message as it waits, or as a dead letter; its next run may need a key of its own."""
    plan = delivery.plan.as_json()
    key = delivery.dedup["key"]
    return Item(
        subscription=listener.path,
        source=listener.spec.source,
        message_id=delivery.message_id,
        idempotency_key=delivery.plan.idempotency_key,
        dedup_key=dedup_text(delivery.plan, delivery.message_id),
        recv_seq=delivery.recv_seq,
        ordering_key=delivery.lane,
        downstream=delivery.downstream,
        dispatch_key=again(key) if is_new_run else key,
        dedup=_keys(delivery),
        sha256=sha256_of(delivery.message, plan),
        spooled_at=spooled_at(clock.now()),
        reason=reason,
        spec_version=listener.version,
        plan=plan,
        message=delivery.message,
    )


def _keys(delivery: Delivery) -> Keys | msgspec.UnsetType:
    """What a message keeps of its first start, when its key alone does not say it all."""
    if delivery.execution_id is None:
        return msgspec.UNSET
    return Keys(**delivery.dedup, execution_id=delivery.execution_id)


def ref_of_delivery(listener: Listener, delivery: Delivery) -> str:
    """The reference of a message that waits, or is a dead letter."""
    return ref_of(listener.path, delivery.recv_seq, delivery.message_id)


def _moment(value: object) -> datetime | None:
    """When a message was sent: milliseconds since 1970, or a text of RFC 3339."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1000, UTC)
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None
