"""Runs that messages of subscriptions start: under whom, and what their logs tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.clock import rfc3339
from noetl.edge.errors import UnknownExecution
from noetl.engine.subscriptions import ACCEPTED, DEDUPLICATED, DIRECTIVES_APPLIED, REPLAYED
from noetl.ids import made_at, parse
from noetl.server.access.listening import CONTROL, must_listen
from noetl.server.subscriptions.telling import must_tell
from noetl.store.subscriptions import NOT_TOLD, DeliveryRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from noetl.api.executions import Execute, Ingress, Started
    from noetl.server.access.entry import Caller
    from noetl.server.ingest.wanted import Wanted
    from noetl.server.subscriptions.documents import Specs
    from noetl.server.subscriptions.logs import SubscriptionLogs
    from noetl.store.subscriptions import Deliveries


class Messages:
    """Knows subscriptions as parents of runs."""

    def __init__(self, logs: SubscriptionLogs, specs: Specs, deliveries: Deliveries) -> None:
        self._logs = logs
        self._specs = specs
        self._deliveries = deliveries

    async def under(self, wanted: Wanted, parent: str, caller: Caller, body: Execute) -> str | None:
        """Make a wish one for a message, if its parent is a subscription; the path of that."""
        row = await self._logs.named(parent)
        if row is None:
            return None
        if caller.is_bound and row.tenant_id != caller.tenant_id:
            raise UnknownExecution(f"there is no execution {parent}")
        if body.ingress is None and caller.is_bound:
            must_listen(caller, CONTROL, row.path)
        else:
            await must_tell(caller, row, self._specs)
        wanted.tenant_id = row.tenant_id
        wanted.labels = {**wanted.labels, "subscription": row.path}
        told: dict[str, Any] = {"id": row.subscription_id, "path": row.path}
        if (ingress := body.ingress) is not None:
            told |= {"message_id": ingress.message_id, "downstream": ingress.downstream}
            if ingress.delivery_id is not None:
                told["delivery_id"] = parse(ingress.delivery_id)
            if ingress.replay_of is not None:
                wanted.replay_of = parse(ingress.replay_of)
            wanted.told = tuple(_told(ingress, wanted.trace))
        wanted.subscription = told
        if not body.trigger:
            wanted.trigger = {"kind": "subscription", "name": row.path}
        return row.path

    async def answered(self, starts: Iterable[tuple[Wanted, Started]]) -> None:
        """Tell subscriptions of messages that came again, and deliveries that waited of runs."""
        found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        waited: dict[str, list[DeliveryRow]] = {}
        for wanted, started in starts:
            about = wanted.subscription
            if about is None:
                continue
            if "delivery_id" in about and any(name == REPLAYED for name, _ in wanted.told):
                waited.setdefault(about["id"], []).append(_waited(about, started))
            if started.status != "duplicate":
                continue
            facts = {
                "message_id": about.get("message_id"),
                "execution_id": started.execution_id,
                "key": wanted.dedup[1] if wanted.dedup else None,
            }
            found.setdefault(about["id"], []).append((DEDUPLICATED, facts))
        for subscription_id, events in found.items():
            await self._logs.tell(subscription_id, events)
        for subscription_id, rows in waited.items():
            await self._deliveries.ran(subscription_id, rows)


def _waited(about: Mapping[str, Any], started: Started) -> DeliveryRow:
    """What is known of a delivery whose gateway has not told the rest of it yet."""
    delivery_id = about["delivery_id"]
    return DeliveryRow(
        delivery_id=delivery_id,
        at=rfc3339(made_at(int(delivery_id))),
        outcome="spooled",
        reason=NOT_TOLD,
        message_id=about.get("message_id"),
        execution_id=started.execution_id,
    )


def _told(ingress: Ingress, trace: dict[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the log of a run tells of its message."""
    if ingress.listener is not None and ingress.spool_ref is None:
        pushed = {
            "message_id": ingress.message_id,
            "listener": ingress.listener,
            "delivery_id": ingress.delivery_id,
        }
        yield ACCEPTED, pushed
    if ingress.applied or ingress.refused or trace:
        facts = {
            "message_id": ingress.message_id,
            "applied": list(ingress.applied),
            "refused": list(ingress.refused),
            "route_override": {"playbook": None, "pool": None, **ingress.route_override},
            "trace": trace,
        }
        yield DIRECTIVES_APPLIED, facts
    if ingress.spool_ref is not None:
        facts = {
            "message_id": ingress.message_id,
            "recv_seq": ingress.recv_seq,
            "spool_ref": ingress.spool_ref,
        }
        yield REPLAYED, facts
