"""How a subscription that is drained by the clock runs: its playbook, and its credentials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.diagnostics import InvalidDocument
from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED

if TYPE_CHECKING:
    from noetl.dsl.subscription.document import Subscription, SubscriptionSpec

DRAIN: Final = "drain"
"""The one step of the run of a tick, and the name of what it is told."""
TICK_S: Final = 900
"""How long a tick may take; what it did not settle comes again."""
_TAKEN: Final = (
    "auth", "url", "user", "password", "token", "endpoint", "stream", "consumer", "topic", "group",
    "subscription",
)  # fmt: skip


def drain_of(model: Subscription) -> Playbook:
    """One step that drains the source; servers and workers make the same of a document."""
    spec, path = model.spec, model.metadata.path
    tool: dict[str, Any] = {"kind": "subscription", "operation": DRAIN, "source": spec.source}
    tool |= {name: value for name in _TAKEN if (value := getattr(spec, name)) is not None}
    if spec.brokers is not None:
        tool["brokers"] = list(spec.brokers)
    tool["batch"] = spec.runtime.batch
    tool["timeout"] = TICK_S
    step = {"step": DRAIN, "input": {DRAIN: f"{{{{ workload.{DRAIN} }}}}"}, "tool": tool}
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": path.rpartition("/")[2], "path": path},
        "executor": {"spec": {"pool": spec.runtime.pool}},
        "workflow": [step],
    }
    parsed = parse(json.dumps(document), plugins=STORED)
    if not isinstance(parsed.model, Playbook):
        raise InvalidDocument(parsed.diagnostics, source=path)
    return parsed.model


def aliases_of(spec: SubscriptionSpec) -> frozenset[str]:
    """The credentials that a document names: of its source, and of its spool."""
    spool = None if spec.spool is None else spec.spool.alias
    return frozenset(filter(None, (spec.auth, spool)))
