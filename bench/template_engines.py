"""Compares template engines on the corpus, on time and on runaway templates.

`python -m bench.template_engines` prints one JSON document, the evidence for ADR 0011. Jinja2 and
minijinja run as they would be used: sandboxed, strict about undefined names, with what fuel they
offer.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import timeit
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import minijinja

from bench.sampling import record
from noetl.dsl.template import compile_template
from noetl.dsl.template.syntax.parser import parse
from noetl.dsl.template.template import Template
from tests.unit.dsl.template.corpus import (
    ENVIRONMENT,
    Case,
    answer,
    data,
    jinja_answer,
    load,
    lone_expression,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Answer = tuple[str, object]

LONE = "{{ workload.n }}"
MIXED = "n={{ workload.n }} and {{ user.name }}"
SCOPE = {"workload": {"n": 3}, "user": {"name": "Ann"}}
ENGINES = ("noetl", "jinja2", "minijinja")
TIMEOUT_S = 2.0
MEMORY_BYTES = 2 * 1024**3


def minijinja_environment() -> minijinja.Environment:
    return minijinja.Environment(
        undefined_behavior="strict", fuel=1_000_000, keep_trailing_newline=True
    )


def minijinja_answer(case: Case) -> Answer:
    environment = minijinja_environment()
    expression = lone_expression(case)
    try:
        if expression is None:
            return ("value", environment.render_str(case.text, **case.scope))
        return ("value", data(environment.eval_expr(expression, **case.scope)))
    # Failures of Python values that it calls back pass through as they are.
    except (minijinja.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        return ("error", type(error).__name__)


def passes(case: Case, found: Answer) -> bool:
    if found[0] != case.expected[0]:
        return False
    return found[0] == "error" or json.dumps(found[1]) == json.dumps(case.expected[1])


def corpus(ask: Callable[[Case], Answer], cases: list[Case]) -> dict[str, object]:
    failed = Counter(case.group for case in cases if not passes(case, ask(case)))
    total = Counter(case.group for case in cases)
    return {
        "passed": len(cases) - failed.total(),
        "of": len(cases),
        "failed_by_group": {
            group: f"{failed[group]} of {total[group]}" for group in sorted(failed)
        },
    }


def microseconds(function: Callable[[], object], number: int) -> float:
    # The least of many: a busy machine only ever adds time.
    return round(min(timeit.repeat(function, number=number, repeat=25)) / number * 1e6, 2)


def timing() -> dict[str, dict[str, float]]:
    lone, mixed = compile_template(LONE), compile_template(MIXED)
    jinja_lone = ENVIRONMENT.compile_expression(LONE[2:-2])
    jinja_mixed = ENVIRONMENT.from_string(MIXED)
    rust = minijinja_environment()
    rust.add_template("mixed", MIXED)
    short = "{{ workload.n | default(3) }}"
    return {
        "noetl": {
            "compile_path_us": microseconds(lambda: Template(LONE, parse(LONE)), 1000),
            "compile_short_us": microseconds(lambda: Template(short, parse(short)), 1000),
            "lone_us": microseconds(lambda: lone.render(SCOPE), 2000),
            "mixed_us": microseconds(lambda: mixed.render(SCOPE), 2000),
        },
        "jinja2": {
            "compile_path_us": microseconds(lambda: ENVIRONMENT.compile_expression(LONE[2:-2]), 50),
            "compile_short_us": microseconds(
                lambda: ENVIRONMENT.compile_expression(short[2:-2]), 50
            ),
            "lone_us": microseconds(lambda: jinja_lone(SCOPE), 1000),
            "mixed_us": microseconds(lambda: jinja_mixed.render(SCOPE), 1000),
        },
        "minijinja": {
            # It has no compiled expressions, so a lone one is parsed at each use.
            "lone_us": microseconds(lambda: rust.eval_expr(LONE[2:-2], **SCOPE), 1000),
            "mixed_us": microseconds(lambda: rust.render_template("mixed", **SCOPE), 1000),
        },
    }


def runaways(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.expected == ("error", {"code": "template_limit"})]


def attempt(engine: str, number: int) -> int:
    """Run one runaway template in this process; the exit status says if the engine refused it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    case = runaways(load())[number]
    ask = {"noetl": answer, "jinja2": jinja_answer, "minijinja": minijinja_answer}[engine]
    return 0 if ask(case)[0] == "error" else 1


def is_stopped(engine: str, number: int) -> bool:
    command = [sys.executable, "-m", "bench.template_engines", engine, str(number)]
    try:
        # The time includes the start of the process and reading the corpus, about a second.
        done = subprocess.run(command, timeout=TIMEOUT_S + 2, check=False, capture_output=True)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def stopped(engine: str, cases: list[Case]) -> dict[str, object]:
    known = runaways(cases)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # nothing is timed here
        are_stopped = list(pool.map(partial(is_stopped, engine), range(len(known))))
    missed = [case.text[:80] for case, is_so in zip(known, are_stopped, strict=True) if not is_so]
    return {"stopped": len(known) - len(missed), "of": len(known), "not_stopped": missed}


def report(watched: Iterable[str] = ENGINES) -> dict[str, dict[str, Any]]:
    """Everything that ADR 0011 rests on; runaways of the engines that are watched."""
    cases = load()
    # Filters of our own and views exist nowhere else, and runaways are measured apart.
    shared = [case for case in cases if case.is_same_in_jinja and case.group != "limits"]
    chains = [case for case in cases if "chain" in case.why]
    bounded = [
        case for case in cases if case.group not in {"limits", "views"} and "10**9" not in case.text
    ]
    return {
        "corpus": {"noetl": corpus(answer, cases)},
        "shared_with_jinja2": {
            "noetl": corpus(answer, shared),
            "jinja2": corpus(jinja_answer, shared),
            "minijinja": corpus(minijinja_answer, shared),
        },
        "default_on_missing_chains": {
            "noetl": corpus(answer, chains),
            "jinja2": corpus(jinja_answer, chains),
            "minijinja": corpus(minijinja_answer, chains),
        },
        "whole_language": {
            "jinja2": corpus(jinja_answer, bounded),
            "minijinja": corpus(minijinja_answer, bounded),
        },
        "timing": timing(),
        "runaways": {engine: stopped(engine, cases) for engine in watched},
    }


def records(repeat: int) -> list[dict[str, Any]]:
    """Our time for a lone expression, right only if the whole corpus and every limit hold."""
    del repeat  # the figures are already the least of many runs
    found = report(ENGINES[:1])  # others take minutes to be killed, and do not change
    own, limits = found["corpus"]["noetl"], found["runaways"]["noetl"]
    right = own["passed"] == own["of"] and limits["stopped"] == limits["of"]
    lone = found["timing"]["noetl"]["lone_us"]
    made = record("template-engines", [lone], unit="us", correct=right)
    return [made | {"report": found}]


def main() -> int:
    """Print the report, or run one template in this process for the parent to watch."""
    if len(sys.argv) > 1:
        return attempt(sys.argv[1], int(sys.argv[2]))
    print(json.dumps(report(), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
