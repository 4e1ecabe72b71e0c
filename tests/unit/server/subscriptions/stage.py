"""Documents of subscriptions, and what tests do with them on a server of memory parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.catalog import Register
from noetl.api.events import Report, Reports
from noetl.api.executions import Dedup, Execute, Ingress
from noetl.api.subscriptions import PutDeadLetter
from noetl.blobs.spool.item import Item, sha256_of
from noetl.sources.directives import Plan
from tests.unit.server.rig import ONE_STEP

if TYPE_CHECKING:
    from noetl.api.events import Reported
    from noetl.api.executions import Started
    from tests.unit.server.rig import Rig

PATH = "subs/meters"
TARGET = "plant/store"
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
PLAYBOOK = (
    "apiVersion: noetl.io/v2\nkind: Playbook\n"
    f"metadata: {{name: store, path: {TARGET}}}\n{ONE_STEP.lstrip()}"
)
NATS = "source: nats, mode: pull, auth: nats_plant, stream: PLANT, consumer: meters"
PUSH = (
    "source: webhook, mode: push, ingress: {gateway_path: /ingress/%s, "
    "verify: {type: hmac_sha256, secret: hook, header: x-signature}}"
)


def document(path: str = PATH, spec: str = NATS, more: str = "") -> str:
    """A subscription that each message of starts the target."""
    return (
        "apiVersion: noetl.io/v1\nkind: Subscription\n"
        f"metadata: {{name: {path.rpartition('/')[2]}, path: {path}}}\n"
        f"spec: {{{spec}, dispatch: {{playbook: {TARGET}}}{more}}}\n"
    )


async def registered(r: Rig, more: str = "", path: str = PATH, spec: str = NATS) -> str:
    """Register the target and a subscription; the id of that."""
    await r.client.register(Register(content=PLAYBOOK))
    await r.client.register(Register(content=document(path, spec, more)))
    return (await r.client.register_subscription(path)).subscription_id


def message(sub: str, number: int = 1, **more: Any) -> Execute:
    """What a runtime asks for when a message has come."""
    ingress = {"message_id": f"PLANT:{number}", "source": "nats", "downstream": "default"}
    given = {
        "path": TARGET,
        "payload": {"n": number},
        "execution_pool": "meters",
        "parent_execution_id": sub,
        "dedup": Dedup(key=f"m:PLANT:{number}", window_secs=600),
        "ingress": Ingress(**(ingress | more.pop("ingress", {}))),
    }
    return Execute(**(given | more))


async def dispatched(r: Rig, sub: str, number: int = 1, **more: Any) -> Started:
    """Start the run of a message."""
    return await r.client.execute(message(sub, number, **more))


async def told(r: Rig, sub: str) -> list[str]:
    """The log of a subscription, as the last parts of its types."""
    rows = await r.client.events(sub, limit=1000)
    return [row["event_type"].removeprefix("subscription.") for row in rows.items]


async def facts(r: Rig, run: str, name: str) -> list[dict[str, Any]]:
    """What the events of a type tell, in the log of a run or of a subscription."""
    rows = (await r.client.events(run, limit=1000)).items
    return [row.get("context", {}) for row in rows if row["event_type"] == f"subscription.{name}"]


def report(r: Rig, sub: str, name: str, event_id: str = "", **payload: Any) -> Report:
    """One event of a runtime."""
    return Report(
        execution_id=sub,
        event_id=event_id or r.ids.new(),
        event_type=f"subscription.{name}",
        payload=payload,
    )


async def post(r: Rig, *events: Report) -> Reported:
    """Report events of a runtime."""
    return await r.client.report(Reports(worker_id="runtime-1", pool="", events=events))


def item_of(number: int, playbook: str = TARGET) -> Item:
    """A message that was refused."""
    message = {"id": f"PLANT:{number}", "data": {"n": number}, "headers": {}}
    plan = Plan(playbook=playbook, execution_pool="meters").as_json()
    return Item(
        subscription=PATH,
        source="nats",
        message_id=f"PLANT:{number}",
        recv_seq=str(350 + number),
        downstream="default",
        dispatch_key=f"m:PLANT:{number}",
        sha256=sha256_of(message, plan),
        spooled_at="2026-01-01T00:00:00.000Z",
        reason="dispatch_rejected",
        plan=plan,
        message=message,
    )


async def kept(r: Rig, sub: str, item: Item, **changed: Any) -> str:
    """Have the server keep a letter; its reference."""
    body = PutDeadLetter(
        ref=item.ref,
        message_id=item.message_id,
        reason="dispatch_rejected",
        item=msgspec.to_builtins(item) | changed,
        recv_seq=item.recv_seq,
    )
    return (await r.client.put_dead_letter(sub, body)).ref
