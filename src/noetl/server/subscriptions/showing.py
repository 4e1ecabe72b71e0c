"""Subscriptions as readers see them: the row, its document, and what its processes tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.subscriptions import (
    Circuit,
    Instances,
    SpoolFigures,
    Subscription,
    Subscriptions,
    SubscriptionStats,
)
from noetl.edge.moments import from_now
from noetl.server.access.listening import READ, may_listen
from noetl.server.subscriptions.documents import tree_of
from noetl.server.subscriptions.lifecycle import desired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.clock import Clock
    from noetl.server.access.caller import Caller
    from noetl.server.subscriptions.documents import Specs
    from noetl.store.base import RuntimeRow, Store
    from noetl.store.subscriptions import SubscriptionRow

SILENT_S: Final = 30.0
HOUR_S: Final = 3600.0
_KINDS: Final = ("subscription", "gateway")
"""Processes that listen; what they serve is in `runtime.subscriptions`, figures by path."""


class Showing:
    """Tells of subscriptions."""

    def __init__(self, store: Store, clock: Clock, specs: Specs) -> None:
        self._store = store
        self._clock = clock
        self._specs = specs

    async def listed(
        self, caller: Caller, state: str | None = None, path: str | None = None
    ) -> Subscriptions:
        """Those of the caller's tenant that he may see, by path."""
        rows = [
            row
            for row in await self._store.subscriptions.listed(caller.tenant_id, state)
            if path in {None, row.path} and may_listen(caller, READ, row.path)
        ]
        processes = await self._processes() if rows else []
        return Subscriptions(
            subscriptions=tuple([await self._told(row, processes) for row in rows])
        )

    async def every(self) -> list[tuple[SubscriptionRow, Subscription]]:
        """Every subscription of every tenant, for those who follow lists."""
        rows = await self._store.subscriptions.listed()
        processes = await self._processes() if rows else []
        return [(row, await self._told(row, processes)) for row in rows]

    async def told(self, row: SubscriptionRow) -> Subscription:
        """One, with its document."""
        entry, _ = await self._specs.of(row)
        shown = await self._told(row, await self._processes())
        return msgspec.structs.replace(shown, content=entry.content, spec=tree_of(entry.content))

    async def stats(self, row: SubscriptionRow) -> SubscriptionStats:
        """Figures of one."""
        shown = await self._told(row, await self._processes())
        since = from_now(self._clock, -HOUR_S)
        return SubscriptionStats(
            subscription_id=row.subscription_id,
            state=shown.state,
            executions=await self._store.outcomes.counted(row.subscription_id, since),
            events=row.summary.get("counts", {}),
            runtime=shown.runtime,
            circuit=shown.circuit,
            spool=shown.spool,
            dead_letters=await self._store.letters.counted(row.subscription_id),
        )

    async def _processes(self) -> list[RuntimeRow]:
        found: list[RuntimeRow] = []
        for kind in _KINDS:
            found += await self._store.runtimes.listed(kind)
        return found

    async def _told(self, row: SubscriptionRow, processes: Iterable[RuntimeRow]) -> Subscription:
        _, spec = await self._specs.of(row)
        summary = row.summary
        serving = [
            (one, figures) for one in processes if (figures := _served(one, row)) is not None
        ]
        dlq = await self._store.letters.counted(row.subscription_id)
        circuits = {
            name: msgspec.convert(found, Circuit)
            for name, found in summary.get("circuit", {}).items()
        }
        return Subscription(
            subscription_id=row.subscription_id,
            path=row.path,
            catalog_id=row.catalog_id,
            version=row.version,
            state=row.state,  # type: ignore[arg-type]  # one of its words
            last_event_type=row.last_event_type,
            updated_at=row.updated_at,
            desired=desired(row),
            runtime=self._instances(serving),
            circuit=circuits,
            spool=_spool(serving, dlq, int(summary.get("spool", 0))),
            pending_actions=tuple(summary.get("requests", ())),
            source=spec.source,
            mode=spec.mode,
            activation=spec.activation or ("continuous" if spec.mode == "pull" else ""),
            pool=spec.dispatch.execution_pool or spec.runtime.pool,
            playbook=spec.dispatch.playbook,
            listener=row.listener,
            actor=summary.get("actor", ""),
            reason=summary.get("reason", ""),
            rate_limited_at=summary.get("rate_limited_at"),
            next_tick_at=row.next_tick_at,
            last_execution_id=row.last_execution_id,
            tenant_id=row.tenant_id,
        )

    def _instances(self, serving: list[tuple[RuntimeRow, dict[str, Any]]]) -> Instances:
        since = from_now(self._clock, -SILENT_S)
        alive = [(one, figures) for one, figures in serving if one.heartbeat >= since]
        backlogs = [int(n) for _, figures in alive if (n := figures.get("backlog")) is not None]
        rates = [float(n) for _, f in alive if (n := f.get("rate_per_minute")) is not None]
        return Instances(
            instances=len(alive),
            last_seen=max((one.heartbeat for one, _ in serving), default=None),
            backlog=max(backlogs, default=None),
            in_flight=sum(int(figures.get("in_flight") or 0) for _, figures in alive),
            rate_per_minute=sum(rates) if rates else None,
        )


def _served(process: RuntimeRow, row: SubscriptionRow) -> dict[str, Any] | None:
    """What a process tells of a subscription, if it serves it."""
    if process.runtime.get("tenant_id", row.tenant_id) != row.tenant_id:
        return None
    served = process.runtime.get("subscriptions")
    if isinstance(served, dict):
        figures = served.get(row.path)
        return figures if isinstance(figures, dict) else None
    return {} if isinstance(served, list) and row.path in served else None


def _spool(serving: list[tuple[RuntimeRow, dict[str, Any]]], dlq: int, items: int) -> SpoolFigures:
    """The figures of who drains, else of who was heard of last, else what the log tells."""
    told = [(bool(f.get("leads")), one.heartbeat, f["spool"]) for one, f in serving if "spool" in f]
    if not told:
        return SpoolFigures(items=items, dlq=dlq)
    spool: dict[str, Any] = max(told, key=lambda item: item[:2])[2]
    return SpoolFigures(
        items=int(spool.get("items") or 0),
        bytes=int(spool.get("bytes") or 0),
        oldest_at=spool.get("oldest_at"),
        dlq=dlq,
    )
