"""Playbooks by catalog id, parsed once: a version never changes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.api.problems import Refused
from noetl.dsl.diagnostics import InvalidDocument
from noetl.dsl.draining import drain_of
from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.dsl.secret_inputs import secret_paths
from noetl.dsl.subscription.document import Subscription
from noetl.engine.cursor import claim_step
from noetl.tools.base import ToolError
from noetl.worker.patience import is_passing, patiently

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.catalog import Entry
    from noetl.api.client import Client
    from noetl.dsl.playbook import Step
    from noetl.dsl.tasks.task import Output, TaskSpec

MOST_KEPT: Final = 256
WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Known:
    """What commands need of a playbook."""

    steps: Mapping[str, Step]
    defaults: TaskSpec | None
    results: Output | None = None
    """How results are kept unless a step says otherwise."""
    secret: tuple[tuple[str, ...], ...] = ()
    """Where the secret values of its workload lie."""
    claims: dict[str, Step] = field(default_factory=dict)
    """Steps that run the claim of a cursor, made on first use."""

    def claim(self, name: str) -> Step:
        """The claim of a step's cursor, as a step of its own."""
        if name not in self.claims:
            self.claims[name] = claim_step(self.step(name))
        return self.claims[name]

    def step(self, name: str) -> Step:
        """The step of this name."""
        if name not in self.steps:
            raise ToolError("config", "unknown_step", f"the playbook has no step `{name}`")
        return self.steps[name]


class Playbooks:
    """The playbooks that commands of this worker belong to."""

    def __init__(self, client: Client, most_kept: int = MOST_KEPT) -> None:
        self._client = client
        self._most = most_kept
        self._kept: OrderedDict[str, Known] = OrderedDict()

    def kept(self, catalog_id: str) -> Known | None:
        """The playbook when it was read before."""
        known = self._kept.get(catalog_id)
        if known is not None:
            self._kept.move_to_end(catalog_id)
        return known

    async def get(self, catalog_id: str) -> Known:
        """The playbook; a server that is away is asked again for a while."""
        try:
            entry = await patiently(lambda: self._client.entry(catalog_id), within_s=WITHIN_S)
        except Refused as fault:
            if is_passing(fault):
                raise
            message = f"the playbook {catalog_id} cannot be read: {fault.message}"
            raise ToolError("config", fault.code, message) from None
        known = self.kept(catalog_id)
        if known is None:
            known = _known(entry)
            self._kept[catalog_id] = known
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return known


def _known(entry: Entry) -> Known:
    parsed = parse(entry.content, plugins=STORED)
    playbook: object = parsed.model
    if isinstance(playbook, Subscription):  # the run of a tick
        playbook = drain_of(playbook)
    if not isinstance(playbook, Playbook):
        told = InvalidDocument(parsed.diagnostics, source=entry.path)
        raise ToolError("config", "invalid_playbook", str(told))
    spec = playbook.executor.spec if playbook.executor else None
    policy = spec.policy if spec else None
    return Known(
        steps={step.name: step for step in playbook.workflow},
        defaults=policy.defaults if policy else None,
        results=policy.results if policy else None,
        secret=secret_paths(parsed),
    )
