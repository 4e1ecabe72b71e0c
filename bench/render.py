"""Rendering of warm templates: a lone expression, a mixed text, a condition."""

from __future__ import annotations

from typing import Any

from bench.sampling import record, timed
from noetl.dsl.template import compilations, compile_condition, compile_template

SCOPE = {
    "workload": {"n": 3, "region": "eu"},
    "ctx": {"total": 40},
    "fetch": {"data": {"url": "https://example.org", "rows": [{"id": 1}, {"id": 2}]}},
    "output": {"status": "ok", "data": {"n": 7}},
    "event": {"name": "call.done"},
}
LONE = "{{ workload.n }}"
MIXED = "n={{ workload.n }} of {{ ctx.total | default(0) }} at {{ fetch.data.url }}"
CONDITION = "output.status == 'ok' and event.name == 'call.done'"


def records(repeat: int) -> list[dict[str, Any]]:
    """Microseconds per render, and that a text is compiled once."""
    lone, mixed, condition = (
        compile_template(LONE),
        compile_template(MIXED),
        compile_condition(CONDITION),
    )
    right = lone.render(SCOPE) == 3 and mixed.render(SCOPE) == "n=3 of 40 at https://example.org"  # noqa: PLR2004 - the scope's value
    before = compilations()
    made = [
        record(
            name,
            timed(lambda it=it: it.render(SCOPE), repeat, scale=1e6, loops=20_000),
            unit="us",
            limit=limit,
            correct=right,
            params={"template": it.text},
        )
        for name, it, limit in (
            ("render-lone", lone, 15.0),
            ("render-mixed", mixed, 40.0),
            ("render-condition", condition, 15.0),
        )
    ]
    for _ in range(1_000):
        compile_template(MIXED)
        compile_condition(CONDITION)
    again = compilations() - before
    made.append(record("compiled-again", [again], unit="compilations", limit=0))
    return made
