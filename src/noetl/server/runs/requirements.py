"""What a playbook requires of the platform, asked before a run of it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.tasks import KINDS
from noetl.edge.errors import Unacceptable

if TYPE_CHECKING:
    from noetl.dsl.playbook import Playbook

FEATURES: Final = frozenset({
    "callback", "child", "concurrency", "cursor", "cycle", "final_step", "fork", "join",
    "large_results", "loop", "parallel_loop", "pause", "pipeline", "retry", "schedule",
    "timeout", "wait",
})  # fmt: skip


def check(playbook: Playbook, kinds: frozenset[str] | None) -> None:
    """Refuse a playbook that this installation cannot run; `kinds` are those its workers have."""
    executor = playbook.executor
    if executor is None:
        return
    missing: list[str] = []
    if executor.runtime == "wasm":
        missing.append("the runtime `wasm`")
    if executor.requires is not None:
        known = KINDS.keys() if kinds is None else kinds
        asked = executor.requires
        missing += [f"the tool `{name}`" for name in asked.tools if name not in known]
        missing += [f"the feature `{name}`" for name in asked.features if name not in FEATURES]
    if missing:
        raise Unacceptable(
            f"{playbook.path} requires {', '.join(missing)}, which this installation lacks",
            code="requirement_missing",
            hint="see `executor` of the playbook",
        )
