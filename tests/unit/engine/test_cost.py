"""What an event costs does not grow with the run: counted in calls, so that no clock decides."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from tests.unit.engine.host import Host, ok

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine import events as ev
    from tests.unit.engine.host import Tool


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C."""
    count = 0

    def seen(_frame: object, kind: str, _what: object) -> None:
        nonlocal count
        count += kind in {"call", "c_call"}

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def steady(body: str, tools: Tool | None = None) -> tuple[int, int]:
    """The calls for a hundred commands near the beginning, and near the end."""
    host = Host(body, tools)
    host.settle()
    costs = []
    while host.open:
        costs.append(calls(lambda: host.report(host.open.pop(0))))
    assert host.state.terminal == "COMPLETED"
    assert len(costs) >= 600
    return sum(costs[100:200]), sum(costs[-300:-200])


def test_an_iteration_costs_the_same_at_the_end_of_a_long_loop() -> None:
    first, last = steady("""
workflow:
  - step: start
    loop: {in: 1000, iterator: i, spec: {mode: parallel, max_in_flight: 50}}
    tool: {kind: python, code: "1"}
""")
    assert last == first


def test_a_visit_costs_the_same_at_the_end_of_a_long_cycle() -> None:
    first, last = steady("""
workflow:
  - step: start
    tool: {kind: python, code: "1"}
    set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}
    next: {arcs: [{step: other, when: "{{ ctx.n < 600 }}"}]}
  - {step: other, next: {arcs: [{step: start}]}}
""")
    assert last == first


def test_a_frame_costs_the_same_at_the_end_of_a_long_cursor() -> None:
    def tools(command: ev.CommandIssued) -> object:
        return ok({"rows": [1] if (command.frame or 0) < 400 else []})

    body = """
workflow:
  - step: start
    loop:
      iterator: i
      cursor: {kind: sqlite, path: a.db, claim: select 1}
      spec: {mode: cursor, frame: {max_rows: 1}}
    tool: {kind: python, code: "1"}
"""
    first, last = steady(body, tools)
    assert last == first


def fan(width: int) -> str:
    arcs = ", ".join(f"{{step: b{number}}}" for number in range(width))
    steps = "\n".join(
        f'  - {{step: b{number}, tool: {{kind: python, code: "1"}}, next: {{arcs: [{{step: j}}]}}}}'
        for number in range(width)
    )
    return f"""
workflow:
  - {{step: start, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}
{steps}
  - {{step: j}}
"""


def test_a_branch_costs_the_same_however_many_there_are() -> None:
    few, many = (Host(fan(width)) for width in (20, 200))
    small, large = calls(few.run), calls(many.run)
    assert many.state.terminal == "COMPLETED"
    assert large < small * 10.5
