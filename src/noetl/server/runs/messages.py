"""Runs that messages of subscriptions start: under whom, and what their logs tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.edge.errors import UnknownExecution
from noetl.engine.subscriptions import DEDUPLICATED, DIRECTIVES_APPLIED, REPLAYED
from noetl.server.access.listening import CONTROL, must_listen
from noetl.server.subscriptions.telling import must_tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl.api.executions import Execute, Ingress, Started
    from noetl.server.access.entry import Caller
    from noetl.server.ingest.wanted import Wanted
    from noetl.server.subscriptions.documents import Specs
    from noetl.server.subscriptions.logs import SubscriptionLogs


class Messages:
    """Knows subscriptions as parents of runs."""

    def __init__(self, logs: SubscriptionLogs, specs: Specs) -> None:
        self._logs = logs
        self._specs = specs

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
            wanted.told = tuple(_told(ingress, wanted.trace))
        wanted.subscription = told
        if not body.trigger:
            wanted.trigger = {"kind": "subscription", "name": row.path}
        return row.path

    async def deduplicated(self, starts: Iterable[tuple[Wanted, Started]]) -> None:
        """Tell subscriptions of messages that came again."""
        found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for wanted, started in starts:
            about = wanted.subscription
            if started.status != "duplicate" or about is None:
                continue
            facts = {
                "message_id": about.get("message_id"),
                "execution_id": started.execution_id,
                "key": wanted.dedup[1] if wanted.dedup else None,
            }
            found.setdefault(about["id"], []).append((DEDUPLICATED, facts))
        for subscription_id, events in found.items():
            await self._logs.tell(subscription_id, events)


def _told(ingress: Ingress, trace: dict[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the log of a run tells of its message."""
    if ingress.applied or trace:
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
