"""Whole-document rules of a Playbook: names, targets, loops, schedules, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.check import templates
from noetl.dsl.check.outputs import store_faults
from noetl.dsl.check.transfer import faults_of
from noetl.dsl.cron import cron_fault, is_moment, timezone_fault
from noetl.dsl.metadata import is_path
from noetl.dsl.names import SCOPES
from noetl.dsl.plugins import STORED
from noetl.dsl.shape import is_name, nearest
from noetl.dsl.shape.reader import value_at
from noetl.dsl.tasks import PlaybookCall, Transfer
from noetl.dsl.tasks import Subscription as SubscriptionTask
from noetl.dsl.tasks.about import about
from noetl.dsl.tasks.errors import ERROR_KINDS
from noetl.dsl.tasks.polls import MOST_TIMEOUT_MS
from noetl.dsl.template import is_template, pattern_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.dsl.playbook.document import Playbook, Trigger
    from noetl.dsl.playbook.inputs import InputField
    from noetl.dsl.playbook.loop import Loop
    from noetl.dsl.playbook.step import Step
    from noetl.dsl.shape import Model
    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.tasks.task import Action, Output, Task, TaskSpec
    from noetl.dsl.yaml import Place

END = "end"
_PREVIOUS = frozenset({"previous", "prev"})
_OF_ACTION = {
    "attempts": "retry",
    "backoff": "retry",
    "delay": "retry",
    "max_delay": "retry",
    "jitter": "retry",
    "to": "jump",
    "loop": "break",
    "message": "fail",
}
_SOURCE_FIELDS = {
    "nats": ("stream", "consumer"),
    "kafka": ("topic", "group"),
    "pubsub": ("subscription",),
}


def _keys(model: Model) -> Mapping[str, object]:
    """The map that a model was read from."""
    value = value_at(model.place)
    return value if isinstance(value, dict) else {}


def check_playbook(playbook: Playbook, reader: Reader) -> None:
    """Apply the rules over one Playbook."""
    PlaybookCheck(playbook, reader).run()


class PlaybookCheck:
    """The rules over one Playbook."""

    def __init__(self, playbook: Playbook, reader: Reader) -> None:
        self._playbook = playbook
        self._reader = reader
        self._steps = {step.name: step for step in playbook.workflow if step.name}

    def run(self) -> None:
        """Check what only the whole document can tell."""
        playbook = self._playbook
        self._path()
        self._unique(((step.name, step, "step") for step in playbook.workflow), "step")
        self._unique(((task.name, task, "name") for task in playbook.workbook), "workbook task")
        self._unique(((item.name, item, "name") for item in playbook.keychain), "keychain entry")
        self._unique(((item.name, item, "name") for item in playbook.triggers), "trigger")
        for step in playbook.workflow:
            self._step(step)
        for entry in playbook.workbook:
            self._task(entry.tool, None)
        self._executor()
        self._reachable()
        self._defaults()
        for trigger in playbook.triggers:
            self._trigger(trigger)
        templates.check(playbook, self._reader)

    def _at(self, model: Model, name: str) -> Place:
        return model.place.child(value_at(model.place), name)

    def _path(self) -> None:
        metadata = self._playbook.metadata
        if metadata.path is None and metadata.name and not is_path(metadata.name):
            hint = "add `metadata.path`, or use a name that is a path"
            message = f"the name `{metadata.name[:80]}` cannot be the catalog path"
            self._reader.report("DSL016", message, self._at(metadata, "name"), hint=hint)

    def _unique(self, items: Iterable[tuple[str, Model, str]], what: str) -> None:
        seen: set[str] = set()
        for name, model, key in items:
            if name and name in seen:
                message = f"another {what} is named `{name}`"
                self._reader.report("DSL017", message, self._at(model, key))
            seen.add(name)

    # ------------------------------------------------------------------ steps

    def _step(self, step: Step) -> None:
        if step.name in SCOPES:
            message = (
                f"`{step.name}` is also a scope; templates read the step as `steps.{step.name}`"
            )
            self._reader.report("DSL110", message, self._at(step, "step"))
        self._timeouts(step)
        for index, arc in enumerate(step.arcs):
            if is_name(arc.step) and arc.step != END and arc.step not in self._steps:
                self._unknown_step(arc.step, self._at(arc, "step"), f"arc {index + 1}")
        if step.loop is not None:
            self._loop(step, step.loop)
        single = step.tools[0] if step.tools and not step.is_pipeline else None
        if step.output is not None and single is not None and single.output is not None:
            message = "`output` stands on the step and on its tool"
            self._reader.report("DSL033", message, self._at(step, "output"), on_key=True)
        self._output(step.output)
        self._pipeline(step)

    def _timeouts(self, step: Step) -> None:
        policy = step.spec.policy if step.spec else None
        limit = policy.lifecycle if policy else None
        if step.spec and step.spec.timeout is not None and limit and limit.timeout_s is not None:
            message = "`timeout_s` and `spec.timeout` say the same"
            where = self._at(limit, "timeout_s")
            self._reader.report("DSL039", message, where, on_key=True, hint="keep one of them")

    def _unknown_step(self, name: str, place: Place, where: str) -> None:
        message = f"{where} names no step: `{name[:80]}`"
        known = self._steps
        self._reader.report("DSL018", message, place, hint=lambda: nearest(name, [*known, END]))

    def _loop(self, step: Step, loop: Loop) -> None:
        mode = loop.spec.mode if loop.spec else None
        self._iterator(loop)
        if mode == "cursor" and loop.cursor is None and loop.spec:
            hint = "add `cursor`, or use `sequential` or `parallel`"
            message = "mode `cursor` needs `cursor`"
            self._reader.report("DSL039", message, self._at(loop.spec, "mode"), hint=hint)
        if loop.cursor is not None and mode not in {None, "cursor"} and loop.spec:
            message = f"a cursor does not run in mode `{mode}`"
            self._reader.report("DSL039", message, self._at(loop.spec, "mode"), hint="omit `mode`")
        if loop.spec and loop.spec.frame and loop.cursor is None:
            message = "`frame` needs `cursor`"
            self._reader.report("DSL039", message, self._at(loop.spec, "frame"), on_key=True)
        if loop.cursor is not None and loop.cursor.kind != "nats" and loop.cursor.claim is None:
            message = f"a {loop.cursor.kind} cursor needs `claim`"
            self._reader.report("DSL051", message, loop.cursor.place, into=True)
        for name in step.set:
            if name.startswith("iter."):
                place = self._at(step, "set").child(step.set, name)
                self._reader.report("DSL032", f"`{name}` in the `set` of a loop step", place,
                                    on_key=True)  # fmt: skip
        if mode == "parallel" or loop.cursor is not None:
            self._parallel_writes(step)

    def _iterator(self, loop: Loop) -> None:
        if loop.iterator in SCOPES:
            message = f"`{loop.iterator}` is also a scope; templates read `iter.{loop.iterator}`"
            self._reader.report("DSL110", message, self._at(loop, "iterator"))
        source = loop.source
        wrong = isinstance(source, (bool, float)) or (isinstance(source, int) and source < 0)
        if wrong or (source is None and loop.cursor is None and "in" in _keys(loop)):
            hint = "use a list, a map, a whole number, a text, or a template of one"
            message = "a loop cannot go over this value"
            self._reader.report("DSL039", message, self._at(loop, "in"), hint=hint)

    def _parallel_writes(self, step: Step) -> None:
        for task in step.tools:
            owners: list[Task | Action] = [task, *(rule.then for rule in task.rules)]
            for owner in owners:
                for name in owner.set:
                    if name.startswith("ctx."):
                        place = self._at(owner, "set").child(owner.set, name)
                        message = f"`{name}` is written by iterations that run together"
                        self._reader.report("DSL112", message, place, on_key=True)

    def _pipeline(self, step: Step) -> None:
        names = [task.name for task in step.tools] if step.is_pipeline else []
        seen: set[str] = set()
        for task in step.tools:
            if step.is_pipeline and task.name in seen:
                message = f"another task of this pipeline is named `{task.name}`"
                self._reader.report("DSL034", message, self._at(task, "name"))
            seen.add(task.name)
            self._task(task, names)

    # ------------------------------------------------------------------ tasks

    def _task(self, task: Task, names: list[str] | None) -> None:
        self._output(task.output)
        if not about(task.kind).is_built:
            message = f"no worker of this release runs `{task.kind}`: the step will fail"
            hint = "in a test the step can be mocked"
            self._reader.report("DSL117", message, self._at(task, "kind"), hint=hint)
        if task.spec:
            self._task_spec(task.spec, names)
        if isinstance(task, SubscriptionTask) and task.operation in {"poll", "drain"}:
            for name in _SOURCE_FIELDS.get(task.source, ()) if "source" in _keys(task) else ():
                if getattr(task, name) is None:
                    message = f"`{task.source}` needs `{name}`"
                    self._reader.report("DSL051", message, task.place, into=True)
            self._poll(task)
            self._drain(task)
        if isinstance(task, Transfer) and task.mode == "upsert" and not task.key_:
            message = "mode `upsert` needs `key`"
            self._reader.report("DSL039", message, self._at(task, "mode"))
        if isinstance(task, Transfer):
            self._transfer(task)
        if isinstance(task, PlaybookCall) and task.path and not is_template(task.path):
            self._child_path(task)

    def _poll(self, task: SubscriptionTask) -> None:
        """A wait that is longer than a poll of this source may be."""
        most = MOST_TIMEOUT_MS.get(task.source)
        if most is not None and isinstance(task.timeout_ms, int) and task.timeout_ms > most:
            message = f"{task.timeout_ms} is outside 0..{most} with the source `{task.source}`"
            self._reader.report("DSL039", message, self._at(task, "timeout_ms"))

    def _drain(self, task: SubscriptionTask) -> None:
        """What the server alone runs, for a Subscription that is drained by the clock."""
        if task.operation == "drain" and self._reader.plugins is not STORED:
            message = "`drain` is for the ticks of a Subscription, and not for a playbook"
            hint = "write a Subscription with `activation: scheduled`, or `operation: poll`"
            self._reader.report("DSL039", message, self._at(task, "operation"), hint=hint)

    def _output(self, output: Output | None) -> None:
        """A store that there is not, or one that lacks a key."""
        store = output.store if output is not None else None
        if store is None:
            return
        for fault in store_faults(store, _keys(store)):
            if fault.is_missing:
                message = fault.message
                self._reader.report("DSL037", message, store.place, into=True, hint=fault.hint)
            else:
                where = self._at(store, fault.key)
                self._reader.report("DSL039", fault.message, where, hint=fault.hint)

    def _transfer(self, task: Transfer) -> None:
        """A pair of stores, or a mode, that no transfer has."""
        for side, name, message in faults_of(task):
            if side and side not in _keys(task):
                continue  # that it is missing was told
            model = getattr(task, side) if side else task
            if name in _keys(model):
                self._reader.report("DSL039", message, self._at(model, name))
            else:
                self._reader.report("DSL051", message, model.place, into=True)

    def _child_path(self, task: PlaybookCall) -> None:
        if not is_path((task.path or "").removeprefix("/")):
            message = f"`{(task.path or '')[:80]}` is not a catalog path"
            self._reader.report("DSL016", message, self._at(task, "path"))

    def _task_spec(self, spec: TaskSpec, names: list[str] | None) -> None:
        for rule in spec.policy.rules if spec.policy else ():
            self._action(rule.then, names)
        if spec.retry:
            for index, kind in enumerate(spec.retry.kinds):
                if kind not in ERROR_KINDS:
                    place = self._at(spec.retry, "kinds")
                    message = f"`{kind[:80]}` is not an error kind"
                    hint = nearest(kind, ERROR_KINDS)
                    self._reader.report(
                        "DSL039", message, place.child(value_at(place), index), hint=hint
                    )

    def _action(self, action: Action, names: list[str] | None) -> None:
        written = _keys(action)
        for key in [name for name in written if name in _OF_ACTION]:
            if action.do != _OF_ACTION[key]:
                message = f"`{key}` means nothing with `do: {action.do}`"
                hint = f"it belongs to `do: {_OF_ACTION[key]}`"
                where = self._at(action, key)
                self._reader.report("DSL039", message, where, on_key=True, hint=hint)
        if action.do != "jump" or action.to is None or names is None:
            return
        if action.to not in names and action.to not in _PREVIOUS:
            hint = nearest(action.to, [*names, "previous"])
            message = f"`jump` names no task of this pipeline: `{action.to[:80]}`"
            self._reader.report("DSL018", message, self._at(action, "to"), hint=hint)

    # ------------------------------------------------------------------ the run

    def _executor(self) -> None:
        executor = self._playbook.executor
        if executor is None:
            return
        if executor.runtime == "wasm" and executor.plugin is None:
            message = "runtime `wasm` needs `plugin`"
            self._reader.report("DSL037", message, executor.place, into=True)
        spec = executor.spec
        if spec is None:
            return
        if spec.policy and spec.policy.defaults:
            self._task_spec(spec.policy.defaults, None)
        if spec.policy:
            self._output(spec.policy.results)
        for key in ("entry_step", "final_step"):
            name = getattr(spec, key)
            if name is not None and name not in self._steps:
                self._unknown_step(name, self._at(spec, key), f"`{key}`")

    def _reachable(self) -> None:
        playbook = self._playbook
        waiting = [playbook.entry, playbook.final or ""]
        reached: set[str] = set()
        while waiting:
            name = waiting.pop()
            step = self._steps.get(name)
            if step is None or name in reached:
                continue
            reached.add(name)
            waiting.extend(arc.step for arc in step.arcs)
        if playbook.entry not in self._steps:
            return
        for step in playbook.workflow:
            if step.name and step.name not in reached:
                message = f"nothing reaches the step `{step.name}`"
                self._reader.report("DSL114", message, self._at(step, "step"))

    def _defaults(self) -> None:
        for name, field in self._playbook.inputs.items():
            if name in self._playbook.workload and field.has_default:
                message = f"`{name}` has a default here and in `workload`"
                self._reader.report("DSL036", message, self._at(field, "default"), on_key=True)
            self._input(field)

    def _input(self, field: InputField) -> None:
        fault = pattern_fault(field.pattern) if field.pattern is not None else None
        if fault is not None:
            self._reader.report("DSL039", fault, self._at(field, "pattern"))
        for low, high in (("min", "max"), ("min_length", "max_length")):
            least, most = getattr(field, low), getattr(field, high)
            if least is not None and most is not None and least > most:
                message = f"`{low}` {least} is more than `{high}` {most}"
                self._reader.report("DSL039", message, self._at(field, low))
        if field.has_default and field.default is not None and not field.accepts(field.default):
            message = "the default is not a value that this input takes"
            self._reader.report("DSL039", message, self._at(field, "default"))
        for inner in field.properties.values():
            self._input(inner)

    def _trigger(self, trigger: Trigger) -> None:
        faults = (
            ("cron", cron_fault(trigger.cron) if trigger.cron is not None else None),
            ("timezone", timezone_fault(trigger.timezone)),
        )
        for key, fault in faults:
            if fault is not None:
                self._reader.report("DSL070", fault, self._at(trigger, key))
        for key in ("start_at", "end_at"):
            moment = getattr(trigger, key)
            if moment is not None and not is_moment(moment):
                message = f"`{moment[:40]}` is not an RFC 3339 time"
                self._reader.report("DSL070", message, self._at(trigger, key))
