"""Random playbooks with everything that a workflow may hold, the same ones for the same seed.

A *tame* playbook is made of blocks with one way in and one way out (sequences, branches that join,
cycles that nest, failures that are handled) and no two branches write the same key: every schedule
has to give it the same end. A *wild* one has arcs from anywhere to anywhere; it has to end.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

MOST_VISITS = 60
RETRY = {
    "when": "{{ output.status == 'error' }}",
    "then": {"do": "retry", "attempts": 3, "delay": 5},
}
PYTHON = {"kind": "python", "code": "1"}


@dataclass
class Maker:
    """Steps under construction."""

    chance: random.Random
    is_tame: bool
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    def often(self, share: float) -> bool:
        """Whether something that happens so often happens now."""
        return self.chance.random() < share

    # ------------------------------------------------------------------ steps

    def step(self, *, plain: bool = False) -> str:
        """A step that does some work, or none."""
        name = f"s{len(self.steps)}"
        made: dict[str, Any] = {"step": name}
        self.steps[name] = made
        if plain:
            return name
        if self.often(0.25):
            made |= self.loop()
        elif self.often(0.85):
            made["tool"] = self.tool(name)
        if spec := self.spec():
            made["spec"] = made.get("spec", {}) | spec
        if self.often(0.2):
            made["set"] = {f"ctx.set_{name}": "{{ output.status }}"}
        return name

    def spec(self) -> dict[str, Any]:
        """An admission, a limit, a failure mode."""
        made: dict[str, Any] = {}
        policy: dict[str, Any] = {}
        if self.often(0.1):
            policy["admit"] = self.chance.choice([True, False, "{{ workload.on }}"])
        if self.often(0.3):
            policy["failure"] = {"mode": "best_effort"}
        if self.often(0.1):
            policy["lifecycle"] = {"deadline_s": 7200}
        if policy:
            made["policy"] = policy
        if self.often(0.15):
            made["timeout"] = "5m"
        if self.often(0.1):
            made["idempotent"] = self.is_tame
        return made

    def tool(self, name: str) -> Any:
        """One tool, or a pipeline of them."""
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

    def task(self) -> dict[str, Any]:
        """One task: of a worker mostly, else one that waits without a slot."""
        kind = self.chance.choice(
            ["python"] * 6 + ["playbook", "playbooks", "wait", "callback", "noop", "detached"]
        )
        made: dict[str, Any]
        match kind:
            case "playbook":
                made = {"kind": "playbook", "path": "demo/child", "timeout": "1h"}
            case "detached":
                made = {"kind": "playbook", "path": "demo/child", "wait": False}
            case "playbooks":
                made = {"kind": "playbooks", "items": [{"path": "a"}, {"path": "b"}],
                        "best_effort": self.often(0.5)}  # fmt: skip
            case "wait":
                made = {"kind": "wait", "seconds": self.chance.choice([1, 90])}
            case "callback":
                made = {"kind": "wait", "callback": True, "timeout": "1h"}
            case "noop":
                return {"kind": "noop"}
            case _:
                made = dict(PYTHON)
        if self.often(0.25):
            made["spec"] = {"policy": {"rules": [RETRY]}}
        return made

    def loop(self) -> dict[str, Any]:
        """A loop of a few items or rows, with its tool."""
        mode = self.chance.choice(["sequential", "parallel", "parallel", "cursor"])
        spec: dict[str, Any] = {"mode": mode, "max_in_flight": self.chance.randint(1, 3)}
        tool: dict[str, Any] = dict(PYTHON)
        if self.often(0.2):
            tool["spec"] = {"policy": {"rules": [RETRY]}}
        if mode != "cursor":
            if self.often(0.2):
                tool = self.task()
            if tool["kind"] == "noop":
                tool = dict(PYTHON)
            return {
                "loop": {"in": self.chance.randint(0, 4), "iterator": "i", "spec": spec},
                "tool": tool,
            }
        spec["frame"] = {
            "max_rows": 3,
            "row_concurrency": self.chance.randint(1, 2),
            "max_attempts": self.chance.randint(1, 3),
            "process": self.chance.choice(["row", "row", "frame"]),
            "retry_mode": self.chance.choice(["whole_frame", "failed_rows"]),
        }
        cursor = {"kind": "sqlite", "path": "jobs.db", "claim": "select 1"}
        return {"loop": {"cursor": cursor, "iterator": "i", "spec": spec}, "tool": tool}

    def leads(self, source: str, arcs: list[dict[str, Any]], mode: str = "exclusive") -> None:
        """Give a step its arcs."""
        self.steps[source]["next"] = {"spec": {"mode": mode}, "arcs": arcs}

    # ------------------------------------------------------------------ blocks of a tame playbook

    def block(self, depth: int) -> tuple[str, str]:
        """A part with one way in and one way out, which has no arcs yet."""
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
                return name, self.turn(name, name) if self.often(0.15) else name

    def turn(self, name: str, first: str) -> str:
        """A step that goes back until its counter has come round; its way out is a step of its own.

        The counter goes on counting, so that a cycle around this one finds it ready again.
        """
        counter = f"n_{name}"
        turns = self.chance.randint(2, 3)
        self.steps[name].setdefault("set", {})[f"ctx.{counter}"] = (
            f"{{{{ (ctx.{counter} | default(0)) + 1 }}}}"
        )
        out = self.step(plain=True)
        back = {"step": first, "when": f"{{{{ (ctx.{counter} | default(0)) % {turns} != 0 }}}}"}
        self.leads(name, [back, {"step": out}])
        return out

    def branch(self, depth: int) -> tuple[str, str]:
        """Some branches, all taken or only some, that join again."""
        split = self.step(plain=self.often(0.5))
        parts = [self.block(depth - 1) for _ in range(self.chance.randint(2, 3))]
        join = self.step(plain=self.often(0.5))
        conditions = [None, True, False, "{{ workload.on }}", "{{ not workload.on }}"]
        arcs = []
        for first, last in parts:
            when = self.chance.choice(conditions)
            arcs.append({"step": first} if when is None else {"step": first, "when": when})
            self.leads(last, [{"step": join}])
        self.leads(split, arcs, self.chance.choice(["exclusive", "inclusive", "inclusive"]))
        return split, join

    def handled(self) -> tuple[str, str]:
        """A step whose failure leads to a handler, and both lead on."""
        risky, handler, join = self.step(), self.step(plain=self.often(0.7)), self.step(plain=True)
        self.leads(risky, [{"step": handler, "on": "error"}, {"step": join}])
        self.leads(handler, [{"step": join, "on": "any"}])
        return risky, join

    # ------------------------------------------------------------------ wild arcs

    def anything(self) -> None:
        """Steps with arcs to later ones and sometimes a counted arc back, anywhere."""
        names = [self.step(plain=self.often(0.15)) for _ in range(self.chance.randint(1, 7))]
        for index, name in enumerate(names):
            arcs = [self.arc(target) for target in names[index + 1 :] if self.often(0.45)]
            if self.often(0.3):
                counter = f"n{index}"
                self.steps[name].setdefault("set", {})[f"ctx.{counter}"] = (
                    f"{{{{ (ctx.{counter} | default(0)) + 1 }}}}"
                )
                back = self.chance.choice(names[: index + 1])
                arcs.insert(0, {"step": back, "when": f"{{{{ ctx.{counter} < 3 }}}}"})
            if arcs:
                self.leads(name, arcs, self.chance.choice(["exclusive", "inclusive"]))

    def arc(self, target: str) -> dict[str, Any]:
        """An arc with a condition, a write, or a failure to wait for, sometimes."""
        made: dict[str, Any] = {"step": target}
        conditions = [True, False, "{{ workload.on }}", "{{ not workload.on }}"]
        if self.often(0.4):
            made["when"] = self.chance.choice(conditions)
        if self.often(0.3):
            made["on"] = self.chance.choice(["success", "error", "any"])
        if self.often(0.2):
            made["set"] = {f"ctx.arc_{target}": "{{ step.visit }}"}
        return made


def playbook(seed: int, *, is_tame: bool) -> str:
    """The text of a random playbook."""
    chance = random.Random(f"playbook/{seed}")
    maker = Maker(chance, is_tame)
    spec: dict[str, Any] = {"policy": {}}
    if is_tame:
        maker.block(chance.randint(1, 3))
    else:
        maker.anything()
        spec["policy"]["limits"] = {"max_steps": MOST_VISITS}
    if chance.random() < 0.35:
        spec["policy"]["failure"] = {"mode": "best_effort"}
    if chance.random() < 0.15:
        spec["timeout"] = "24h"
    if chance.random() < 0.2:
        spec["final_step"] = maker.step()
    document: dict[str, Any] = {
        "workload": {"on": chance.random() < 0.5},
        "executor": {"spec": spec},
        "workflow": list(maker.steps.values()),
    }
    if is_tame:
        document["result"] = "{{ ctx }}"
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())
