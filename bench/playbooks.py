"""The playbooks that scenarios run, as texts."""

from __future__ import annotations

import json
from typing import Any

Step = dict[str, Any]


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


def open_loop(path: str, items: int) -> str:
    """A loop whose items are all open at once, for a worker that only pretends to run them."""
    return playbook(path, _loop(items, items, python("result = 1")))


def cycle(path: str, visits: int) -> str:
    """One step that comes back to itself."""
    step = {
        "step": "start",
        "tool": python("result = 1"),
        "set": {"ctx.n": "{{ (ctx.n | default(0)) + 1 }}"},
        "next": {"arcs": [{"step": "start", "when": f"{{{{ ctx.n < {visits} }}}}"}]},
    }
    return playbook(path, step)


def playbook(path: str, *steps: Step) -> str:
    """A document of these steps."""
    head = "apiVersion: noetl.io/v2\nkind: Playbook\n"
    named = json.dumps({"name": path.rpartition("/")[2], "path": path})
    return f"{head}metadata: {named}\nworkflow: {json.dumps(steps)}\n"


def python(code: str, **given: str) -> Step:
    """A Python tool."""
    return {"kind": "python", "code": code} | ({"input": given} if given else {})


def _loop(items: int, most: int, tool: Step) -> Step:
    spec = {"mode": "parallel", "max_in_flight": most}
    return {"step": "start", "loop": {"in": items, "iterator": "i", "spec": spec}, "tool": tool}


def _linked(tools: list[Step]) -> list[Step]:
    steps: list[Step] = [
        {"step": f"s{number}", "tool": tool, "next": {"arcs": [{"step": f"s{number + 1}"}]}}
        for number, tool in enumerate(tools)
    ]
    del steps[-1]["next"]
    return steps
