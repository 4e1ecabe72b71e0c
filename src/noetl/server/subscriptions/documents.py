"""The documents of subscriptions, read once each, and what follows from them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.parse import parse
from noetl.dsl.plugins import STORED
from noetl.dsl.subscription.document import Subscription
from noetl.server.subscriptions.errors import NotASubscription, UnknownSubscription
from noetl.store.base import ScheduleRow

if TYPE_CHECKING:
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.store.base import Catalog, CatalogEntry
    from noetl.store.subscriptions import SubscriptionRow

KIND: Final = "subscription"
TICK: Final = "tick"
"""The timer of the next drain."""
MOST_KEPT: Final = 1_000


class Specs:
    """Documents by their ids; a version never changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[str, tuple[CatalogEntry, SubscriptionSpec]] = OrderedDict()

    async def of(self, row: SubscriptionRow) -> tuple[CatalogEntry, SubscriptionSpec]:
        """The document that a subscription goes by."""
        found = self._kept.get(row.catalog_id)
        if found is not None:
            self._kept.move_to_end(row.catalog_id)
            return found
        entry = await self._catalog.get(row.catalog_id)
        if entry is None:
            raise UnknownSubscription(f"the document of {row.path} is gone")
        return self.read(entry)

    def read(self, entry: CatalogEntry) -> tuple[CatalogEntry, SubscriptionSpec]:
        """An entry that is at hand, and what it says."""
        found = self._kept.get(entry.catalog_id)
        if found is None:
            model = parse(entry.content, plugins=STORED).model
            if not isinstance(model, Subscription):
                raise NotASubscription(f"{entry.path} is of kind {entry.kind}")
            found = self._kept[entry.catalog_id] = entry, model.spec
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


def tree_of(content: str) -> dict[str, Any]:
    """The `spec` of a document as its author wrote it."""
    root = parse(content, plugins=STORED).document.root
    spec: dict[str, Any] = msgspec.to_builtins(root.get("spec") if isinstance(root, dict) else {})
    return spec


def listener_of(spec: SubscriptionSpec) -> str | None:
    """The name under which senders push, if they do."""
    return None if spec.ingress is None else spec.ingress.gateway_path.rpartition("/")[2]


def is_scheduled(spec: SubscriptionSpec) -> bool:
    """Whether it is drained by the clock."""
    return spec.mode == "pull" and spec.activation == "scheduled" and spec.cadence is not None


def timetable_of(row: SubscriptionRow, spec: SubscriptionSpec) -> ScheduleRow:
    """When it is drained, as a time table: what was missed is caught up with once."""
    cadence = spec.cadence
    return ScheduleRow(
        schedule_id=row.subscription_id,
        name=row.path,
        path=row.path,
        cron=None if cadence is None else cadence.cron,
        interval_s=None if cadence is None else cadence.interval_s,  # type: ignore[arg-type]  # parts of seconds add up as well
        timezone=spec.timezone or "UTC",
        policy={"catchup": "latest", "overlap": "skip"},
        next_run_at=row.next_tick_at,
    )


async def warnings_of(
    catalog: Catalog, tenant_id: str, spec: SubscriptionSpec
) -> list[dict[str, Any]]:
    """What is to be said of a document that is right: playbooks that are not there yet, losses."""
    found = []
    targets = {"/spec/dispatch/playbook": spec.dispatch.playbook}
    for place, rule in enumerate(spec.headers.directives):
        if rule.controls == "dispatch.playbook":
            pointer = f"/spec/headers/directives/{place}/allowed"
            targets |= {f"{pointer}/{n}": path for n, path in enumerate(rule.allowed or ())}
    for pointer, path in targets.items():
        if await catalog.resolve(tenant_id, path.partition("@")[0]) is None:
            message = f"the catalog has no {path} yet"
            found.append(_warning("target_missing", message, pointer, "register the playbook"))
    if spec.mode == "push" and spec.spool is not None and spec.spool.mode == "off":
        message = "senders are refused while the server or a downstream is away"
        hint = "buffer_and_ack keeps what they send"
        found.append(_warning("spool_off", message, "/spec/spool/mode", hint))
    return found


def _warning(code: str, message: str, pointer: str, hint: str) -> dict[str, Any]:
    return {
        "code": code,
        "severity": "warning",
        "message": message,
        "hint": hint,
        "pointer": pointer,
    }
