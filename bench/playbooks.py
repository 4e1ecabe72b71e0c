"""The playbooks that scenarios run, as texts."""

from __future__ import annotations

import json
from typing import Any

Step = dict[str, Any]
MIXED_STEPS = 8
MIXED_RESULT = 0 + 1 + 4 + 9


def chain(path: str, steps: int) -> str:
    """Trivial Python steps in line; the last one returns its number."""
    return playbook(path, *_linked([python(f"result = {number}") for number in range(steps)]))


def chain_http(path: str, steps: int, url: str) -> str:
    """The same with requests to a local server."""
    tool = {"kind": "http", "method": "GET", "url": url}
    return playbook(path, *_linked([tool] * steps))


def fan_out(path: str, items: int, most: int) -> str:
    """One loop of trivial Python items, whose results are collected in order."""
    return playbook(path, _loop(items, most, python("result = i", i="{{ i }}")))


def open_loop(path: str, items: int, most: int | None = None) -> str:
    """A loop for workers that only pretend to run its items; all are open at once, or so many."""
    return playbook(path, _loop(items, most or items, python("result = 1")))


def cycle(path: str, visits: int) -> str:
    """One step that comes back to itself."""
    step = {
        "step": "start",
        "tool": python("result = 1"),
        "set": {"ctx.n": "{{ (ctx.n | default(0)) + 1 }}"},
        "next": {"arcs": [{"step": "start", "when": f"{{{{ ctx.n < {visits} }}}}"}]},
    }
    return playbook(path, step)


def passing(path: str, steps: int, size: int) -> str:
    """A value of so many bytes that every step but its maker is given; the last returns its size.

    Each reads it, so that it has to be there.
    """
    made = python(f"result = 'x' * {size}")
    read = python("result = len(value)", value="{{ s0.data }}")
    return playbook(path, *_linked([made, *[read] * (steps - 1)]))


def mixed(path: str, url: str) -> str:
    """Python, a request, a branch, a loop and an end: `MIXED_STEPS` commands in all."""
    then = {"step": "each"}
    return playbook(
        path,
        {
            "step": "start",
            "tool": python("result = 4"),
            "set": {"ctx.count": "{{ output.data }}"},
            "next": {"arcs": [{"step": "fetch"}]},
        },
        {
            "step": "fetch",
            "tool": {"kind": "http", "method": "GET", "url": url},
            "next": {
                "spec": {"mode": "exclusive"},
                "arcs": [
                    {"step": "good", "when": "{{ output.data.data.status == 'ok' }}"},
                    {"step": "bad"},
                ],
            },
        },
        {"step": "good", "tool": python("result = 'good'"), "next": {"arcs": [then]}},
        {"step": "bad", "tool": python("result = 'bad'"), "next": {"arcs": [then]}},
        _loop("{{ range(ctx.count) }}", 4, python("result = i * i", i="{{ i }}"))
        | {"step": "each", "next": {"arcs": [{"step": "end"}]}},
        {"step": "end", "tool": python("result = sum(squares)", squares="{{ each.data }}")},
    )


def playbook(path: str, *steps: Step) -> str:
    """A document of these steps."""
    head = "apiVersion: noetl.io/v2\nkind: Playbook\n"
    named = json.dumps({"name": path.rpartition("/")[2], "path": path})
    return f"{head}metadata: {named}\nworkflow: {json.dumps(steps)}\n"


def python(code: str, **given: str) -> Step:
    """A Python tool."""
    return {"kind": "python", "code": code} | ({"input": given} if given else {})


def _loop(items: int | str, most: int, tool: Step) -> Step:
    spec = {"mode": "parallel", "max_in_flight": most}
    return {"step": "start", "loop": {"in": items, "iterator": "i", "spec": spec}, "tool": tool}


def _linked(tools: list[Step]) -> list[Step]:
    steps: list[Step] = [
        {"step": f"s{number}", "tool": tool, "next": {"arcs": [{"step": f"s{number + 1}"}]}}
        for number, tool in enumerate(tools)
    ]
    del steps[-1]["next"]
    return steps
