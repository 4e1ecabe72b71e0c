"""Scenes written by hand, for what generated worlds show rarely."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.simulation.faults import CALM, Plan

PY = '{kind: python, code: "result = 1", input: {turn: "{{ _attempt }}"}}'
HANGS = '{kind: python, code: "result = 1", input: {hangs: true}}'


@dataclass(kw_only=True)
class Scene:
    """A world with a playbook of its own."""

    playbooks: dict[str, str] = field(default_factory=dict)
    runs: int = 1
    seed: int = 1
    failing: float = 0.0
    plan: Plan | None = None
    fork: dict[str, Any] | None = None


def top(text: str, **children: str) -> dict[str, str]:
    """The playbook that is started, and its children."""
    return {"sim/top": text, **{f"sim/{name}": body for name, body in children.items()}}


CHAIN = f"""
workflow:
  - step: a
    tool: {PY}
    set: {{ctx.seen: "{{{{ output.status }}}}"}}
    next: {{arcs: [{{step: b}}]}}
  - step: b
    tool: {PY}
"""
QUEUE = f"""
executor: {{spec: {{concurrency: {{key: same, limit: 1, on_limit: queue}}}}}}
workflow:
  - step: a
    tool: {PY}
"""
PREVIOUS = QUEUE.replace("queue", "cancel_previous").replace(PY, HANGS)
TIMEOUT = f"""
workflow:
  - step: a
    spec: {{timeout: 5s}}
    tool: {HANGS}
    next: {{arcs: [{{step: b, on: error}}]}}
  - step: b
    tool: {PY}
"""
RUN_TIMEOUT = f"""
executor: {{spec: {{timeout: 5s}}}}
workflow:
  - step: a
    tool: {HANGS}
"""
JOIN = f"""
workflow:
  - step: a
    next:
      spec: {{mode: inclusive}}
      arcs: [{{step: b}}, {{step: c, when: "{{{{ false }}}}"}}, {{step: d, set: {{ctx.d: 1}}}}]
  - {{step: b, tool: {PY}, next: {{arcs: [{{step: e}}]}}}}
  - {{step: c, tool: {PY}, next: {{arcs: [{{step: e}}]}}}}
  - {{step: d, tool: {PY}, next: {{arcs: [{{step: e}}]}}}}
  - {{step: e, tool: {PY}, spec: {{policy: {{admit: false}}}}}}
"""
CURSOR = f"""
workflow:
  - step: a
    loop:
      cursor: {{kind: sqlite, path: jobs.db, claim: select 1}}
      iterator: row
      spec: {{mode: cursor, max_in_flight: 2, frame: {{max_rows: 3, max_attempts: 2}}}}
    spec: {{policy: {{failure: {{mode: best_effort}}}}}}
    tool: {PY}
"""
WAITS = """
workflow:
  - {step: a, tool: {kind: wait, seconds: 30}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: wait, callback: true}, next: {arcs: [{step: c}]}}
  - step: c
    tool:
      - {name: one, kind: wait, seconds: 3}
      - {name: two, kind: wait, callback: true, timeout: 1h}
      - {name: three, kind: playbook, path: sim/child}
"""
CHILD = f"""
workflow:
  - {{step: a, tool: {PY}}}
"""
CHILDREN = """
workflow:
  - step: a
    tool: {kind: playbook, path: sim/child}
    next: {arcs: [{step: b}]}
  - step: b
    tool: {kind: playbooks, items: [{path: sim/child}, {path: sim/nowhere}], best_effort: true}
    next: {arcs: [{step: c, on: any}]}
  - step: c
    tool: {kind: playbook, path: sim/child, wait: false}
"""
RETRY = """
executor: {spec: {final_step: z}}
workflow:
  - step: a
    tool:
      kind: python
      code: "result = 1"
      input: {turn: "{{ _attempt }}"}
      spec:
        policy:
          rules:
            - when: "{{ output.status == 'error' }}"
              then: {do: retry, attempts: 3, delay: 2}
  - {step: z, tool: {kind: noop}}
"""
FAILS = f"""
workflow:
  - step: a
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: c}}]}}
  - {{step: b, tool: {PY}}}
  - step: c
    loop: {{in: 4, iterator: i, spec: {{mode: parallel, max_in_flight: 1}}}}
    tool: {PY}
"""
LIMITED = f"""
workflow:
  - step: a
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: b}}, {{step: c}}]}}
  - {{step: b, tool: {PY}}}
  - {{step: c, spec: {{timeout: 1h}}, tool: {{kind: wait, seconds: 600}}}}
"""
CYCLE = f"""
workflow:
  - step: a
    tool: {PY}
    set: {{ctx.n: "{{{{ (ctx.n | default(0)) + 1 }}}}"}}
    next: {{arcs: [{{step: a, when: "{{{{ ctx.n < 3 }}}}"}}, {{step: b}}]}}
  - {{step: b}}
"""
CRASHES = Plan(rates=CALM, chaos_s=60.0, worker_crash_every_s=3.0, lease_s=4.0, workers=2)
CUTS = Plan(rates=CALM, chaos_s=60.0, partition_every_s=2.0, lease_s=4.0, workers=2)
CANCELS = Plan(rates=CALM, chaos_s=20.0, cancel=1.0)
PAUSES = Plan(rates=CALM, chaos_s=10.0, pause=1.0)

SCENES: dict[str, Scene] = {
    "chain": Scene(playbooks=top(CHAIN)),
    "queue": Scene(playbooks=top(QUEUE), runs=3),
    "previous": Scene(playbooks=top(PREVIOUS), runs=2, plan=CANCELS),
    "timeout": Scene(playbooks=top(TIMEOUT)),
    "run_timeout": Scene(playbooks=top(RUN_TIMEOUT)),
    "join": Scene(playbooks=top(JOIN)),
    "cursor": Scene(playbooks=top(CURSOR), seed=3, failing=0.4),
    "waits": Scene(playbooks=top(WAITS, child=CHILD)),
    "children": Scene(playbooks=top(CHILDREN, child=CHILD)),
    "retry": Scene(playbooks=top(RETRY), seed=5, failing=0.7),
    "fails": Scene(playbooks=top(FAILS), seed=2, failing=0.6),
    "limited": Scene(playbooks=top(LIMITED), failing=1.0),
    "cycle": Scene(playbooks=top(CYCLE)),
    "crashes": Scene(playbooks=top(CHAIN), plan=CRASHES, runs=3),
    "cuts": Scene(playbooks=top(CYCLE), plan=CUTS, runs=3),
    "cancels": Scene(playbooks=top(WAITS, child=CHILD), plan=CANCELS, runs=3),
    "pauses": Scene(playbooks=top(TIMEOUT), plan=PAUSES, runs=2),
    "forked": Scene(playbooks=top(FAILS), seed=2, failing=0.6, fork={"from_seq": 6}),
    "reran": Scene(playbooks=top(CHAIN), fork={"from_step": "b", "set": {"more": 1}}),
}
