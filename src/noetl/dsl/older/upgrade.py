"""Forms of earlier releases: normalised with a warning, or refused with the form to use now.

The rules change a tree only through an editor, so that the parser (which keeps positions) and
`noetl migrate` (which keeps comments) share them. Long because every older form is one rule here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from typing import Any, Protocol

from noetl.dsl.shape.units import SET_PREFIXES
from noetl.dsl.template import (
    TemplateSyntax,
    compile_condition,
    compile_template,
    is_template,
    read_sites,
)

Box = MutableMapping[str, Any]
Report = Callable[[str, Box, str, str, str], None]

REFUSED_STEP = {
    "case": "write each branch as an arc of `next.arcs`",
    "type": "write the type as `kind` inside `tool`",
    "pipe": "write the tasks as a list under `tool`",
    "eval": "write rules under `tool.spec.policy.rules`",
    "expr": "write it as `when`",
    "vars": "write values with `set` (`ctx.x`), or defaults in `workload`",
    "until": "write an arc back to the step with a `when`",
}
REFUSED_LOOP = {
    "collection": "write it as `in`",
    "element": "write it as `iterator`",
    "until": "end the loop with a rule `do: break`, `loop: true`",
    "mode": "write it as `spec.mode`",
    "max_in_flight": "write it as `spec.max_in_flight`",
}
REFUSED_TOOL = {
    "iterator": "use `loop` on the step",
    "eval": "write rules under `spec.policy.rules`",
    "expr": "write it as `when` of a rule",
    "case": "write rules under `spec.policy.rules`",
    "pipe": "write the tasks as a list under `tool`",
    "until": "use a rule `do: retry`",
    "vars": "write values with `set` (`ctx.x`)",
}
_SINKS = ("sink", "save")
_PARTS = frozenset({
    "accumulate", "admit", "arcs", "cursor", "defaults", "else", "executor", "keychain", "loop",
    "next", "output", "paginate", "policy", "results", "retry", "rules", "script", "source", "spec",
    "store", "tasks", "then", "tool", "workbook", "workflow",
})  # fmt: skip
_CONDITIONS = frozenset({
    ("workflow", "when"), ("arcs", "when"), ("arcs", "cond"), ("rules", "when"),
    ("policy", "admit"), ("paginate", "until"),
})  # fmt: skip
_ROOT = ""
_LITERAL = frozenset({(_ROOT, "metadata"), (_ROOT, "inputs"), (_ROOT, "triggers"),
                      ("source", "code")})  # fmt: skip
_TOOLS = frozenset({"tool", "tasks"})
_CODED = ("python", "workbook")  # a kind may be of any type
_RESPONSE = re.compile(r"""output\s*(?:\.\s*response\b|\[\s*(['"])response\1\s*\])""")


class Editor(Protocol):
    """How a tree is changed; one editor keeps positions, the other keeps comments."""

    def rename(self, box: Box, old: str, new: str) -> None:
        """Give a key another name, in place."""

    def move(self, box: Box, name: str, target: Box, new: str) -> None:
        """Take a key out of one map and put it into another."""

    def put(
        self,
        target: Box,
        name: str,
        value: Any,  # noqa: ANN401 - any YAML value
        like: tuple[Any, Any],
        *,
        of_key: bool = False,
    ) -> None:
        """Write a key that stands for the value (or the key itself) at `like`."""

    def replace(self, box: Any, name: Any, value: Any) -> None:  # noqa: ANN401 - any YAML value
        """Change a value in place."""

    def drop(self, box: Box, name: str) -> None:
        """Remove a key."""

    def map(self) -> Box:
        """A new, empty map."""

    def seq(self) -> MutableSequence[Any]:
        """A new, empty list."""

    def append(self, items: MutableSequence[Any], value: Any, like: tuple[Any, Any]) -> None:  # noqa: ANN401 - any YAML value
        """Add an item that stands for the value at `like`."""


class Upgrade:
    """Rewrites the older forms of one Playbook."""

    def __init__(self, edit: Editor, report: Report, *, keeps_refused: bool = False) -> None:
        self._edit = edit
        self._report = report
        self._keeps_refused = keeps_refused
        self._root: Box = {}
        self._owns: bool | None = None

    def playbook(self, root: Box, text: str) -> None:
        """Rewrite every older form below the root of a Playbook written as `text`."""
        if isinstance(metadata := root.get("metadata"), dict):
            self.metadata(metadata)
        self._refuse(root, {"vars": "write defaults in `workload`"}, "DSL081")
        self._workbook(root)
        steps = root.get("workflow")
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, dict):
                self.step(step)
        if "outcome" in text or "response" in text:
            self._names(root)

    def metadata(self, metadata: Box) -> None:
        """Normalise path and labels."""
        path = metadata.get("path")
        if isinstance(path, str) and path.startswith("/"):
            self._report(
                "DSL101", metadata, "path", f"the leading `/` of `{path[:80]}` is dropped", ""
            )
            self._edit.replace(metadata, "path", path[1:])
        labels = metadata.get("labels")
        if not isinstance(labels, dict):
            return
        for name, value in list(labels.items()):
            if isinstance(value, (bool, int, float)):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                self._report(
                    "DSL102", labels, name, f"the label `{name}` is read as text", "quote it"
                )
                self._edit.replace(labels, name, text)

    def _refuse(self, box: Box, known: Mapping[str, str], code: str) -> None:
        for name in [name for name in box if name in known]:
            message = f"`{name}` is a form of an earlier release"
            self._report(code, box, name, message, known[name])
            if not self._keeps_refused:
                self._edit.drop(box, name)

    def _twice(self, box: Box, name: str, new: str) -> None:
        """An older form beside the form that replaced it: neither may be dropped in silence."""
        self._report("DSL039", box, name, f"`{name}` and `{new}` say the same", "keep one of them")
        if not self._keeps_refused:
            self._edit.drop(box, name)

    def _workbook(self, root: Box) -> None:
        book = root.get("workbook")
        if isinstance(book, dict):
            self._report("DSL104", root, "workbook", "the workbook is a map", "")
            items = self._edit.seq()
            for name in list(book):
                tool = book[name]
                entry = self._edit.map()
                self._edit.put(entry, "name", name, (book, name), of_key=True)
                if isinstance(tool, dict) and "tool" in tool and "kind" not in tool:
                    for part in list(tool):
                        self._edit.move(tool, part, entry, part)
                else:
                    self._edit.put(entry, "tool", tool, (book, name))
                self._edit.append(items, entry, (book, name))
            self._edit.replace(root, "workbook", items)
            book = items
        for entry in book if isinstance(book, list) else ():
            if not isinstance(entry, dict):
                continue
            if "assert" in entry:
                self._report(
                    "DSL105", entry, "assert", "`assert` of a workbook task is ignored", ""
                )
                self._edit.drop(entry, "assert")
            if isinstance(tool := entry.get("tool"), dict):
                self.tool(tool)

    def step(self, step: Box) -> None:
        """Rewrite the older forms of one step."""
        self._refuse(step, dict.fromkeys(_SINKS, "write with a task of its own"), "DSL080")
        self._refuse(step, REFUSED_STEP, "DSL081")
        if isinstance(loop := step.get("loop"), dict):
            self._refuse(loop, REFUSED_LOOP, "DSL081")
        if "args" in step and "input" in step:
            self._twice(step, "args", "input")
        elif "args" in step:
            self._report("DSL125", step, "args", "`args` of a step", "write `input`")
            self._edit.rename(step, "args", "input")
        self._when(step)
        self._writes(step)
        self._next(step)
        self._tools(step)
        self._rules_of_step(step)

    def _when(self, step: Box) -> None:
        if "when" not in step:
            return
        spec = self._child(step, "spec", (step, "when"))
        policy = None if spec is None else self._child(spec, "policy", (step, "when"))
        if policy is None or "admit" in policy:
            self._twice(step, "when", "spec.policy.admit")
            return
        self._report("DSL124", step, "when", "`when` of a step", "write `spec.policy.admit`")
        self._edit.move(step, "when", policy, "admit")

    def _child(self, box: Box, name: str, like: tuple[Any, Any]) -> Box | None:
        if box.get(name) is None:
            self._edit.put(box, name, self._edit.map(), like)
        child = box[name]
        return child if isinstance(child, dict) else None

    def _writes(self, box: Box) -> None:
        """`set_ctx`, `set_iter`, and keys of `set` without a scope."""
        for old, scope in (("set_ctx", "ctx"), ("set_iter", "iter")):
            if not isinstance(values := box.get(old), dict):
                continue
            self._report("DSL127", box, old, f"`{old}`", f"write `set` with `{scope}.`")
            self._merge(box, old, values, scope)
        writes = box.get("set")
        if not isinstance(writes, dict):
            return
        for name in list(writes):
            if "." in name or name in SET_PREFIXES:
                continue
            if f"ctx.{name}" in writes:
                self._twice(writes, name, f"ctx.{name}")
            else:
                message = f"`{name}` names no scope and is read as `ctx.{name}`"
                self._report("DSL111", writes, name, message, f"write `ctx.{name}`")
                self._edit.rename(writes, name, f"ctx.{name}")

    def _merge(self, box: Box, old: str, values: Box, scope: str) -> None:
        if "set" not in box:
            for name in list(values):
                self._edit.rename(values, name, f"{scope}.{name}")
            self._edit.rename(box, old, "set")
            return
        target = self._child(box, "set", (box, old))
        for name in list(values):
            if target is None or f"{scope}.{name}" in target:
                self._twice(values, name, f"set.{scope}.{name}")
            else:
                self._edit.move(values, name, target, f"{scope}.{name}")
        if not values:
            self._edit.drop(box, old)

    # ------------------------------------------------------------------ routing

    def _next(self, step: Box) -> None:
        spec = step.get("spec")
        mode = spec.get("next_mode") if isinstance(spec, dict) else None
        value = step.get("next")
        if isinstance(value, (str, list)) or (
            isinstance(value, dict) and "step" in value and "arcs" not in value
        ):
            self._report("DSL123", step, "next", "older form of `next`", "write `next.arcs`")
            self._router(step, value, mode)
            if mode is not None:
                self._edit.drop(step["spec"], "next_mode")
                self._drop_empty(step, "spec")
        elif mode is not None:
            self._next_mode(step, value)
        router = step.get("next")
        arcs = router.get("arcs") if isinstance(router, dict) else None
        for arc in arcs if isinstance(arcs, list) else ():
            if isinstance(arc, dict):
                self._arc(arc)

    def _next_mode(self, step: Box, router: Any) -> None:  # noqa: ANN401 - any YAML value
        """`spec.next_mode` beside a router, or beside nothing."""
        spec = step["spec"]
        if isinstance(router, dict):
            inner = self._child(router, "spec", (spec, "next_mode"))
        else:
            inner = self._edit.map()
        if inner is None or "mode" in inner:
            self._twice(spec, "next_mode", "next.spec.mode")
            return
        self._report("DSL123", spec, "next_mode", "`next_mode`", "write `next.spec.mode`")
        self._edit.move(spec, "next_mode", inner, "mode")
        self._drop_empty(step, "spec")

    def _router(self, step: Box, value: Any, mode: object) -> None:  # noqa: ANN401 - any YAML value
        arcs = self._edit.seq()
        listed = isinstance(value, list)
        for index, item in enumerate(value if listed else [value]):
            like = (value, index) if listed else (step, "next")
            if isinstance(item, str):
                arc = self._edit.map()
                self._edit.put(arc, "step", item, like)
                item = arc  # noqa: PLW2901 - the older item gives way to its new form
            self._edit.append(arcs, item, like)
        names_only = listed and len(value) > 1 and all(isinstance(item, str) for item in value)
        chosen = "inclusive" if mode is None and names_only else mode
        router = self._edit.map()
        if chosen not in (None, "exclusive"):
            spec = self._edit.map()
            like = (step, "next") if mode is None else (step["spec"], "next_mode")
            self._edit.put(spec, "mode", chosen, like)
            self._edit.put(router, "spec", spec, like)
        self._edit.put(router, "arcs", arcs, (step, "next"))
        self._edit.replace(step, "next", router)

    def _arc(self, arc: Box) -> None:
        if "cond" in arc and "when" in arc:
            self._twice(arc, "cond", "when")
        elif "cond" in arc:
            self._report("DSL125", arc, "cond", "`cond` of an arc", "write `when`")
            self._edit.rename(arc, "cond", "when")
        if isinstance(values := arc.get("args"), dict):
            self._report("DSL125", arc, "args", "`args` of an arc", "write `set` with `ctx.`")
            self._merge(arc, "args", values, "ctx")
        self._writes(arc)

    # ------------------------------------------------------------------ tools

    def _tools(self, step: Box) -> None:
        tool = step.get("tool")
        if isinstance(tool, dict):
            self.tool(tool)
            tasks = tool.get("tasks")
            if tool.get("kind") == "task_sequence" and isinstance(tasks, list):
                self._pipeline(tasks)
        elif isinstance(tool, list):
            self._pipeline(tool)

    def _pipeline(self, tasks: MutableSequence[Any]) -> None:
        for index, task in enumerate(tasks):
            if not isinstance(task, dict):
                continue
            if len(task) == 1 and "kind" not in task:
                (name,) = task
                if isinstance(inner := task[name], dict):
                    self._report("DSL120", task, name, f"task `{name}` as a key", "write `name`")
                    if "name" not in inner:
                        self._edit.put(inner, "name", name, (task, name), of_key=True)
                    self._edit.replace(tasks, index, inner)
                    task = inner  # noqa: PLW2901 - the older item gives way to its new form
            self.tool(task)

    def tool(self, tool: Box) -> None:
        """Rewrite the older forms of one task."""
        self._refuse(tool, dict.fromkeys(_SINKS, "write with a task of its own"), "DSL080")
        own = {"until"} if tool.get("kind") == "wait" else set()
        refused = {name: hint for name, hint in REFUSED_TOOL.items() if name not in own}
        self._refuse(tool, refused, "DSL081")
        if isinstance(retry := tool.get("retry"), dict):
            self._retry(tool, retry)
        self._writes(tool)
        spec = tool.get("spec")
        policy = spec.get("policy") if isinstance(spec, dict) else None
        if isinstance(policy, dict):
            self._rules(policy)

    def _retry(self, tool: Box, retry: Box) -> None:
        spec = self._child(tool, "spec", (tool, "retry"))
        if spec is None or "retry" in spec:
            self._twice(tool, "retry", "spec.retry")
            return
        hint = "write `spec.retry` with `attempts`, `delay`, `backoff`"
        factor = retry.get("backoff_multiplier")
        if factor not in (None, 1, 2):
            hint += f"; the delay doubles, whatever the multiplier ({factor})"
        self._report("DSL128", tool, "retry", "`retry` of a tool", hint)
        for old, new in (
            ("max_attempts", "attempts"),
            ("initial_delay", "delay"),
            ("retry_delay", "delay"),
        ):
            if old in retry and new not in retry:
                self._edit.rename(retry, old, new)
        if "backoff_multiplier" in retry:
            grows = isinstance(factor, (int, float)) and factor > 1
            if "backoff" not in retry:
                word = "exponential" if grows else "fixed"
                self._edit.put(retry, "backoff", word, (retry, "backoff_multiplier"))
            self._edit.drop(retry, "backoff_multiplier")
        self._edit.move(tool, "retry", spec, "retry")

    def _rules(self, policy: Box) -> None:
        rules = policy.get("rules")
        for rule in rules if isinstance(rules, list) else ():
            if not isinstance(rule, dict):
                continue
            self._refuse(
                rule, {"expr": "write it as `when`", "eval": "write it as `when`"}, "DSL081"
            )
            for body in (rule.get("then"), rule.get("else")):
                if isinstance(body, dict):
                    self._writes(body)
                    if isinstance(then := body.get("then"), dict):
                        self._writes(then)

    def _rules_of_step(self, step: Box) -> None:
        spec = step.get("spec")
        policy = spec.get("policy") if isinstance(spec, dict) else None
        tool = step.get("tool")
        if not isinstance(policy, dict) or "rules" not in policy:
            return
        if not isinstance(tool, dict) or tool.get("kind") == "task_sequence":
            return
        inner = self._child(tool, "spec", (policy, "rules"))
        target = None if inner is None else self._child(inner, "policy", (policy, "rules"))
        if target is None or "rules" in target:
            self._twice(policy, "rules", "tool.spec.policy.rules")
            return
        hint = "move them to `tool.spec.policy`"
        self._report("DSL129", policy, "rules", "rules on a step with a single tool", hint)
        self._edit.move(policy, "rules", target, "rules")
        if "on_unmatched" in policy:
            self._edit.move(policy, "on_unmatched", target, "on_unmatched")
        self._rules(target)
        self._drop_empty(step["spec"], "policy")
        self._drop_empty(step, "spec")

    def _drop_empty(self, box: Box, name: str) -> None:
        """Remove a map whose last key has moved away."""
        if not box[name]:
            self._edit.drop(box, name)

    # ------------------------------------------------------------------ names in templates

    def _names(self, root: Box) -> None:
        """`outcome.x` and `output.response` in every template of the document."""
        self._root = root
        self._rename_below(root, _ROOT)

    def _rename_below(self, box: Box, part: str | None) -> None:
        """Go through a map; `part` is the key that holds it, None inside the author's own data."""
        for name in list(box):
            is_extra = part is not None and name.startswith("x-")
            is_code = name == "code" and part in _TOOLS and box.get("kind") in _CODED
            if not is_extra and not is_code and (part, name) not in _LITERAL:
                self._rename_in(box, name, part)

    def _rename_in(self, box: Any, name: Any, part: str | None) -> None:  # noqa: ANN401 - any YAML value
        value = box[name]
        if isinstance(value, str):
            bare = (part, name) in _CONDITIONS
            if ("outcome" in value or "response" in value) and (bare or is_template(value)):
                self._rename_text(box, name, value)
            return
        if isinstance(name, str):
            part = name if part is not None and name in _PARTS else None
        if isinstance(value, dict):
            self._rename_below(value, part)
        elif isinstance(value, list):
            for index in range(len(value)):
                self._rename_in(value, index, part)

    def _owns_outcome(self) -> bool:
        """Whether the author has an `outcome` of his own; worked out once, when it is read."""
        if self._owns is None:
            self._owns = _declares(self._root, "outcome")
        return self._owns

    def _rename_text(self, box: Any, name: Any, text: str) -> None:  # noqa: ANN401 - any YAML value
        try:
            template = compile_template(text) if is_template(text) else compile_condition(text)
        except TemplateSyntax:
            return  # reported where the text is read
        changed, found = text, set[str]()
        for site in sorted(read_sites(template), key=lambda item: item.offset, reverse=True):
            if site.path[0] == "outcome" and not self._owns_outcome():
                changed = changed[: site.offset] + "output" + changed[site.offset + 7 :]
                found.add("DSL126")
            if site.path[:2] in _RESPONSES and (word := _RESPONSE.match(changed, site.offset)):
                changed = changed[: word.start()] + "output.data" + changed[word.end() :]
                found.add("DSL113")
        if "DSL126" in found:
            self._report("DSL126", box, name, "`outcome` is now `output`", "write `output`")
        if "DSL113" in found:
            message = "`output.response` reads as `output.data`"
            self._report("DSL113", box, name, message, "write `output.data`")
        if found:
            self._edit.replace(box, name, changed)


_NAMES = frozenset({"step", "name", "iterator"})
_SCOPES = frozenset({"workload", "inputs", "input", "args", "set", "set_ctx"})
_RESPONSES = frozenset({("output", "response"), ("outcome", "response")})


def _declares(node: Any, word: str, *, under: str = "") -> bool:  # noqa: ANN401 - any YAML value
    """Whether the document itself defines a name, so that it is not the older scope."""
    if isinstance(node, list):
        return any(_declares(item, word) for item in node)
    if not isinstance(node, Mapping):
        return under in _NAMES and node == word
    if f"ctx.{word}" in node or (under in _SCOPES and word in node):
        return True
    return any(_declares(item, word, under=name) for name, item in node.items())
