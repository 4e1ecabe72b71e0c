"""Who may enter a step, how long it may take, and what its failure does."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from noetl.dsl.shape import (
    ByType,
    Definitions,
    Flag,
    JsonSchema,
    ListOf,
    Model,
    Of,
    OlderKey,
    Text,
    WhenThen,
    choice,
    key,
    model,
)
from noetl.dsl.shape.reader import SERVER
from noetl.dsl.shape.units import Condition, Duration
from noetl.dsl.tasks.task import RuleShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place


@model
class Admission(Model):
    """The verdict of an admission rule."""

    allow: bool = key(Flag(), "may the step be entered")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdmitRule:
    """When the condition holds (always, without one), the step is allowed or not."""

    when: bool | str | None = None
    allow: bool = True


@model
class _AdmitWhen(Model):
    """An admission rule with a condition."""

    when: bool | str | None = key(Condition(SERVER), "when the rule matches", default=None)
    then: Admission = key(Of(Admission), "the verdict")


class _AdmitRuleShape(WhenThen):
    """A rule of admission."""

    def __init__(self) -> None:
        super().__init__(_AdmitWhen, Admission)

    def read(self, value: Any, place: Place, reader: Reader) -> AdmitRule:  # noqa: ANN401 - see Shape
        """Read any of the accepted forms into one rule."""
        when, then = self.parts(value, place, reader)
        return AdmitRule(when=when, allow=then.allow)


@model
class AdmitRules(Model):
    """Admission rules; the first match decides, no match allows."""

    rules: tuple[AdmitRule, ...] = key(ListOf(_AdmitRuleShape(), most=100), "rules", default=())
    mode: str = key(choice("exclusive"), "the first match decides", default="exclusive")


class AdmitShape:
    """Admission rules, or a bare condition that must hold."""

    documented: ClassVar[type[Model]] = AdmitRules
    _forms = ByType(text=Condition(SERVER), flag=Condition(SERVER), map=Of(AdmitRules))
    blank: ClassVar[tuple[()]] = ()

    def read(self, value: Any, place: Place, reader: Reader) -> tuple[AdmitRule, ...]:  # noqa: ANN401 - see Shape
        """Read either form into rules."""
        found = self._forms.read(value, place, reader)
        if isinstance(found, AdmitRules):
            return found.rules
        return (AdmitRule(when=found, allow=True), AdmitRule(allow=False))

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Either form."""
        return self._forms.schema(definitions)

    def words(self) -> str:
        """Admission."""
        return "condition, or {rules: [...]}"


@model
class Lifecycle(Model):
    """Limits of a visit."""

    timeout_s: float | str | None = key(Duration(SERVER), "same as `spec.timeout`", default=None)
    deadline_s: float | str | None = key(
        Duration(SERVER), "seconds after the execution's start", default=None
    )


@model
class Failure(Model):
    """What a failed iteration or branch does to the others."""

    mode: Literal["fail_fast", "best_effort"] = key(
        choice("fail_fast", "best_effort"), "stop, or go on", default="fail_fast"
    )


@model
class Emit(Model):
    """What a step reports besides its result."""

    progress: bool = key(Flag(), "report progress events", default=False)


@model
class StepPolicy(Model):
    """Who may enter, how long it may take, and what a failure does."""

    older: ClassVar[Mapping[str, OlderKey]] = {
        "rules": OlderKey(ListOf(RuleShape()), "the rules on the tool: `tool.spec.policy`"),
    }

    admit: tuple[AdmitRule, ...] = key(AdmitShape(), "may the step be entered", default=())
    lifecycle: Lifecycle | None = key(Of(Lifecycle), "limits of a visit", default=None)
    failure: Failure | None = key(Of(Failure), "what a failure does", default=None)
    emit: Emit | None = key(Of(Emit), "what it reports", default=None)


@model
class StepSpec(Model):
    """Limits, pool and policy of a step."""

    older: ClassVar[Mapping[str, OlderKey]] = {
        "next_mode": OlderKey(choice("exclusive", "inclusive"), "`next.spec.mode`"),
    }

    timeout: float | str | None = key(
        Duration(SERVER), "limit of one visit, retries and iterations included", default=None
    )
    pool: str | None = key(Text(SERVER), "worker pool of this step's commands", default=None)
    idempotent: bool = key(Flag(), "false: a started command is never run again", default=True)
    priority: Literal["low", "normal", "high"] = key(
        choice("low", "normal", "high"), "order of hand-out in a pool", default="normal"
    )
    policy: StepPolicy | None = key(Of(StepPolicy), "admission and failure", default=None)
