"""Random playbooks for worlds: everything that a workflow may hold, the same for the same seed.

A *tame* one ends the same way whatever the schedule: blocks with one way in and out, failures that
stop nobody else, limits that either always or never pass. A *wild* one only has to end.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {path}}}\n"
MOST_VISITS = 40
RETRY = {
    "when": "{{ output.status == 'error' }}",
    "then": {"do": "retry", "attempts": 3, "delay": 4},
}
AT_ONCE = {
    "when": "{{ output.status == 'error' }}",
    "then": {"do": "retry", "attempts": 2, "delay": 0},
}
BEST = {"policy": {"failure": {"mode": "best_effort"}}}


@dataclass
class Maker:
    """Steps under construction."""

    chance: random.Random
    is_tame: bool
    depth: int
    """How many levels of children may follow."""
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    # ------------------------------------------------------------------ steps

    def step(self, *, plain: bool = False) -> str:
        name = f"s{len(self.steps)}"
        made: dict[str, Any] = {"step": name}
        self.steps[name] = made
        if plain:
            return name
        if self.often(0.25):
            made |= self.loop()
        elif self.often(0.9):
            made["tool"] = self.tool(name)
        made["spec"] = self.spec() | made.get("spec", {})
        if self.often(0.2):
            made["set"] = {f"ctx.set_{name}": "{{ output.status }}"}
        return name

    def spec(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.often(0.1):
            made["policy"] = {"admit": self.chance.choice([True, False, "{{ workload.on }}"])}
        if self.often(0.1):
            made["timeout"] = "5h" if self.is_tame else self.chance.choice(["3s", "20s", "5m"])
        if not self.is_tame and self.often(0.15):
            made["idempotent"] = False
        return made

    def tool(self, name: str) -> Any:
        if self.often(0.3):
            tasks = [{"name": f"t{place}", **self.task()} for place in range(3)]
            if self.often(0.5):
                tasks[0]["set"] = {f"ctx.task_{name}": "{{ output.data }}"}
            if self.often(0.2):
                rule = {"when": "{{ output.status == 'error' }}", "then": {"do": "continue"}}
                tasks[1]["spec"] = {"policy": {"rules": [rule]}}
            return tasks
        made = self.task()
        if self.often(0.2) and made["kind"] != "noop":
            made["set"] = {f"ctx.task_{name}": 1}
        return made

    def python(self) -> dict[str, Any]:
        """A scripted call; it is told which try it is."""
        made: dict[str, Any] = {
            "kind": "python", "code": "result = 1", "input": {"turn": "{{ _attempt }}"},
        }  # fmt: skip
        if self.often(0.08):
            made["input"]["hangs"] = True
            made["timeout"] = 6
        return made

    def task(self) -> dict[str, Any]:  # noqa: C901 - one case per kind of task
        kinds = ["python"] * 6 + ["wait", "callback", "noop"]
        if self.depth:
            kinds += ["playbook", "playbook", "playbooks", "detached"]
        made: dict[str, Any]
        child = f"sim/level{self.depth - 1}"
        match self.chance.choice(kinds):
            case "playbook":
                made = {"kind": "playbook", "path": child, "timeout": "6h"}
                if not self.is_tame and self.often(0.3):
                    made["timeout"] = 5
            case "detached":
                made = {"kind": "playbook", "path": child, "wait": False}
            case "playbooks":
                items = [{"path": child}, {"path": "sim/leaf", "input": {"on": True}}]
                made = {"kind": "playbooks", "items": items, "best_effort": self.often(0.5)}
            case "wait":
                made = {"kind": "wait", "seconds": self.chance.choice([0, 1, 40])}
            case "callback":
                made = {"kind": "wait", "callback": True, "timeout": "5h"}
                if not self.is_tame and self.often(0.3):
                    made["timeout"] = 5
            case "noop":
                return {"kind": "noop"}
            case _:
                made = self.python()
        if self.often(0.3):
            rule = RETRY if made["kind"] != "python" or self.often(0.6) else AT_ONCE
            made["spec"] = {"policy": {"rules": [rule]}}
        return made

    def loop(self) -> dict[str, Any]:
        mode = self.chance.choice(["sequential", "parallel", "parallel", "cursor"])
        spec: dict[str, Any] = {"mode": mode, "max_in_flight": self.chance.randint(1, 3)}
        tool = self.python()
        if self.often(0.3):
            tool["spec"] = {"policy": {"rules": [RETRY]}}
        more = dict(BEST) if self.is_tame or self.often(0.5) else {}
        if mode != "cursor":
            if self.often(0.25):
                tool = self.task()
            if tool["kind"] == "noop":
                tool = self.python()
            count = self.chance.randint(0, 5)
            return {"loop": {"in": count, "iterator": "i", "spec": spec}, "tool": tool,
                    "spec": more}  # fmt: skip
        spec["frame"] = {
            "max_rows": 3,
            "max_seconds": 7200 if self.is_tame else self.chance.choice([4, 7200]),
            "row_concurrency": self.chance.randint(1, 2),
            "max_attempts": self.chance.randint(1, 2),
            "retry_mode": self.chance.choice(["whole_frame", "failed_rows"]),
        }
        cursor = {"kind": "sqlite", "path": "jobs.db", "claim": "select 1"}
        return {"loop": {"cursor": cursor, "iterator": "i", "spec": spec}, "tool": tool,
                "spec": more}  # fmt: skip

    def leads(self, source: str, arcs: list[dict[str, Any]], mode: str = "exclusive") -> None:
        self.steps[source]["next"] = {"spec": {"mode": mode}, "arcs": arcs}

    # ------------------------------------------------------------------ blocks of a tame playbook

    def block(self, depth: int) -> tuple[str, str]:
        kinds = ["work"] if depth == 0 else ["work", "sequence", "branch", "cycle", "handled"]
        match self.chance.choice(kinds):
            case "sequence":
                first, middle = self.block(depth - 1)
                again, last = self.block(depth - 1)
                self.leads(middle, [{"step": again}])
                return first, last
            case "branch":
                return self.branch(depth)
            case "cycle":
                first, last = self.block(depth - 1)
                turn = self.step(plain=True)
                self.leads(last, [{"step": turn, "on": "any"}])
                return first, self.turn(turn, first)
            case "handled":
                return self.handled()
            case _:
                name = self.step()
                return name, name

    def turn(self, name: str, first: str) -> str:
        """Go back until the counter has come round."""
        counter = f"n_{name}"
        self.steps[name].setdefault("set", {})[f"ctx.{counter}"] = (
            f"{{{{ (ctx.{counter} | default(0)) + 1 }}}}"
        )
        out = self.step(plain=True)
        back = {"step": first, "when": f"{{{{ (ctx.{counter} | default(0)) % 2 != 0 }}}}"}
        self.leads(name, [back, {"step": out}])
        return out

    def branch(self, depth: int) -> tuple[str, str]:
        split = self.step(plain=self.often(0.5))
        parts = [self.block(depth - 1) for _ in range(self.chance.randint(2, 3))]
        join = self.step(plain=self.often(0.5))
        arcs = []
        for first, last in parts:
            when = self.chance.choice([None, True, False, "{{ workload.on }}"])
            arcs.append({"step": first} if when is None else {"step": first, "when": when})
            self.leads(last, [{"step": join}])
        self.leads(split, arcs, self.chance.choice(["exclusive", "inclusive", "inclusive"]))
        return split, join

    def handled(self) -> tuple[str, str]:
        risky, handler, join = self.step(), self.step(plain=self.often(0.7)), self.step(plain=True)
        if self.often(0.3):  # a limit that always passes
            self.steps[risky] = {
                "step": risky,
                "tool": {"kind": "python", "code": "1", "input": {"turn": 1, "hangs": True}},
                "spec": {"timeout": "9s"},
            }
        self.leads(risky, [{"step": handler, "on": "error"}, {"step": join}])
        self.leads(handler, [{"step": join, "on": "any"}])
        return risky, join

    # ------------------------------------------------------------------ wild arcs

    def anything(self) -> None:
        names = [self.step(plain=self.often(0.15)) for _ in range(self.chance.randint(1, 5))]
        for index, name in enumerate(names):
            arcs = [self.arc(target) for target in names[index + 1 :] if self.often(0.5)]
            if self.often(0.25):
                counter = f"n{index}"
                self.steps[name].setdefault("set", {})[f"ctx.{counter}"] = (
                    f"{{{{ (ctx.{counter} | default(0)) + 1 }}}}"
                )
                back = self.chance.choice(names[: index + 1])
                arcs.insert(0, {"step": back, "when": f"{{{{ ctx.{counter} < 3 }}}}"})
            if arcs:
                self.leads(name, arcs, self.chance.choice(["exclusive", "inclusive"]))

    def arc(self, target: str) -> dict[str, Any]:
        made: dict[str, Any] = {"step": target}
        if self.often(0.3):
            made["when"] = self.chance.choice([True, False, "{{ workload.on }}"])
        if self.often(0.3):
            made["on"] = self.chance.choice(["success", "error", "any"])
        if self.often(0.2):
            made["set"] = {f"ctx.arc_{target}": "{{ step.visit }}"}
        return made


def playbook(seed: object, path: str, depth: int, *, is_tame: bool, is_large: bool = False) -> str:
    """The text of a random playbook whose children have `depth` levels."""
    chance = random.Random(f"playbook/{seed}/{path}")
    maker = Maker(chance, is_tame, depth)
    policy: dict[str, Any] = {}
    spec: dict[str, Any] = {"policy": policy}
    if is_tame:
        maker.block(chance.randint(0, 1 if depth == 0 else 2))
        policy["failure"] = {"mode": "best_effort"}
    else:
        maker.anything()
        policy["limits"] = {"max_steps": MOST_VISITS}
        if chance.random() < 0.35:
            policy["failure"] = {"mode": "best_effort"}
    if chance.random() < 0.15:
        spec["timeout"] = "24h" if is_tame else chance.choice(["30s", "24h"])
    if chance.random() < 0.2:
        spec["final_step"] = maker.step()
    if not is_tame and chance.random() < 0.1:
        on_limit = chance.choice(["queue", "queue", "cancel_previous"])
        spec["concurrency"] = {"key": "same", "limit": 1, "on_limit": on_limit}
    document: dict[str, Any] = {
        "workload": {"on": chance.random() < 0.5},
        "executor": {"spec": spec},
        "workflow": list(maker.steps.values()),
    }
    if is_tame:  # without one, the last step that happens to end would give it
        document["result"] = "{{ ctx.keys() | list | sort }}" if is_large else "{{ ctx }}"
    body = "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())
    return HEAD.format(name=path.rpartition("/")[2], path=path) + body


def library(seed: int, *, is_tame: bool, is_large: bool) -> dict[str, str]:
    """The playbooks of a world by path; `sim/top` is started, the others are its children."""
    depths = {"sim/leaf": 0, "sim/level0": 0, "sim/level1": 1, "sim/top": 2}
    return {
        path: playbook(seed, path, depth, is_tame=is_tame, is_large=is_large)
        for path, depth in depths.items()
    }
