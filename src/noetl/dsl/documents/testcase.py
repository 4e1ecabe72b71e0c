"""Models of `kind: PlaybookTest`: cases with mocked tools and what must come of them.

Payloads, answers and expected values are data and never templates; only conditions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from noetl.dsl.documents.matching import MATCHERS, TYPES, wrong_pattern
from noetl.dsl.metadata import Metadata, PathShape
from noetl.dsl.shape import (
    Constraint,
    Data,
    Definitions,
    ExactlyOne,
    Flag,
    JsonSchema,
    ListOf,
    MapOf,
    Model,
    Name,
    Of,
    Text,
    choice,
    key,
    model,
    nearest,
    whole,
)
from noetl.dsl.shape.reader import SERVER
from noetl.dsl.shape.units import Condition, Duration
from noetl.dsl.tasks import KINDS
from noetl.dsl.tasks.errors import ERROR_KINDS
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader

_MAP = Data(only="map")
_ANSWERS = ("return", "return_file", "raise", "hang", "crash")
_KIND = choice(*ERROR_KINDS)
_STEP_STATUS = choice("COMPLETED", "FAILED", "SKIPPED", "CANCELLED")


class Yes:
    """The word `true`: a key that is either written or left out."""

    blank: ClassVar[bool] = False

    def read(self, value: Any, place: Place, reader: Reader) -> bool:  # noqa: ANN401 - see Shape
        """Read `true`."""
        if not isinstance(value, bool):
            reader.wrong_type(place, value, "true")
        elif not value:
            reader.report("DSL039", "`false` says nothing here", place, hint="remove the key")
        return value is True

    def schema(self, definitions: Definitions) -> JsonSchema:
        """The constant `true`."""
        del definitions
        return {"const": True}

    def words(self) -> str:
        """Only true."""
        return "true"


class Pattern(Text):
    """A regular expression of the linear engine, found anywhere in a text."""

    __slots__ = ()

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read a text that compiles."""
        pattern = super().read(value, place, reader)
        if fault := wrong_pattern(pattern):
            hint = "look-around and back references are not known"
            reader.report("DSL039", fault, place, hint=hint)
        return pattern

    def words(self) -> str:
        """A pattern."""
        return "regular expression"


class ToolKind(Text):
    """The name of a tool kind."""

    __slots__ = ()

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read a kind that exists, or that a plug-in brings."""
        kind = super().read(value, place, reader)
        known = [*KINDS, *reader.plugins]
        if isinstance(value, str) and kind not in known:
            message = f"unknown tool kind `{kind[:80]}`"
            reader.report("DSL050", message, place, hint=nearest(kind, known))
        return kind

    def words(self) -> str:
        """A tool kind."""
        return "tool kind"


class Expected(Data):
    """A value to compare with; a map of `$` keys inside it matches loosely."""

    __slots__ = ()
    _type = choice(*TYPES)
    _pattern = Pattern()

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Keep the value; its matchers must exist and be usable."""
        kept = super().read(value, place, reader)
        self._matchers(kept, place, reader)
        return kept

    def _matchers(self, value: object, place: Place, reader: Reader) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                self._matchers(item, Place(value, index, place), reader)
        elif isinstance(value, dict):
            for name, item in value.items():
                self._entry(name, item, Place(value, name, place), reader)

    def _entry(self, name: str, item: object, place: Place, reader: Reader) -> None:
        if name == "$regex":
            self._pattern.read(item, place, reader)
        elif name == "$type":
            self._type.read(item, place, reader)
        elif name.startswith("$") and name not in MATCHERS:
            known = ", ".join(f"`{item}`" for item in MATCHERS)
            message = f"there is no matcher `{name[:80]}`"
            reader.report("DSL039", message, place, on_key=True, hint=f"the matchers are {known}")
        else:
            self._matchers(item, place, reader)


@model
class Failing(Model):
    """The error that a mocked tool raises."""

    kind: str = key(_KIND, "error kind")
    code: str | None = key(Text(), "error code", default=None)
    message: str = key(Text(), "message", default="")
    status: int | None = key(whole(100, 599), "HTTP status", default=None, aliases=("status_code",))
    retryable: bool | None = key(Flag(), "may be tried again (as the kind says)", default=None)
    retry_after_s: float | None = key(Duration(zero=True), "wait before a retry", default=None)
    details: Mapping[str, Any] = key(_MAP, "further facts", default_factory=dict)


@model
class Answer(Model):
    """What a mocked tool does once."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(_ANSWERS),)

    return_: Any = key(Data(), "the result", name="return", default=None)
    return_file: str | None = key(Text(), "file with the result", default=None)
    raise_: Failing | None = key(Of(Failing), "the error", name="raise", default=None)
    hang: bool = key(Yes(), "never ends", default=False)
    crash: bool = key(Yes(), "the worker is lost", default=False)
    delay: float = key(Duration(zero=True), "virtual time that it takes", default=0.0)


@model
class Mock(Answer):
    """What stands in for the tools of a step."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne((*_ANSWERS, "sequence")),)

    step: str = key(Name(), "step whose tools are mocked")
    task: str | None = key(Name(), "only this task of its pipeline", default=None)
    index: int | None = key(whole(0), "only this iteration of its loop", default=None)
    when: bool | str | None = key(Condition(SERVER), "only when this holds", default=None)
    sequence: tuple[Answer, ...] = key(
        ListOf(Of(Answer), least=1), "one answer a call; the last one stays", default=()
    )


@model
class ExpectedError(Model):
    """The error that must end the run."""

    kind: str | None = key(_KIND, "error kind", default=None)
    step: str | None = key(Name(), "step that failed", default=None)
    message_matches: str | None = key(Pattern(), "pattern found in the message", default=None)


def _anything() -> dict[str, bool]:
    return {"$any": True}


@model
class Expect(Model):
    """What must come of a case."""

    status: Literal["COMPLETED", "FAILED", "CANCELLED"] | None = key(
        choice("COMPLETED", "FAILED", "CANCELLED"),
        "status of the run (COMPLETED; with `error`, FAILED)",
        default=None,
    )
    steps: Mapping[str, str] = key(MapOf(_STEP_STATUS), "status of steps", default_factory=dict)
    calls: Mapping[str, int] = key(MapOf(whole(0)), "calls of steps", default_factory=dict)
    ctx: Mapping[str, Any] = key(Expected(only="map"), "values of `ctx`", default_factory=dict)
    result: Any = key(Expected(), "result of the run", default_factory=_anything)
    error: ExpectedError | None = key(Of(ExpectedError), "error of the run", default=None)
    assert_: tuple[bool | str, ...] = key(
        ListOf(Condition(SERVER), lone=True), "conditions that must hold", name="assert", default=()
    )
    max_events: int | None = key(whole(1), "events at most", default=None)
    exact: bool = key(Flag(), "compare whole values, not parts", default=False)


@model
class Case(Model):
    """One run with mocked tools, and what must come of it."""

    name: str = key(Text(), "what the case shows")
    payload: Mapping[str, Any] = key(_MAP, "payload of the run", default_factory=dict)
    mocks: tuple[Mock, ...] = key(ListOf(Of(Mock)), "what stands in for tools", default=())
    allow: tuple[str, ...] = key(ListOf(ToolKind(), lone=True), "tool kinds that run", default=())
    expect: Expect = key(Of(Expect), "what must come of it", default_factory=Expect)


class Cases:
    """A list of cases with names of their own."""

    documented: ClassVar[type[Model]] = Case
    _list = ListOf(Of(Case), least=1)
    blank: ClassVar[tuple[()]] = ()

    def read(self, value: Any, place: Place, reader: Reader) -> tuple[Case, ...]:  # noqa: ANN401 - see Shape
        """Read the cases; a name that is used twice is a fault."""
        cases: tuple[Case, ...] = self._list.read(value, place, reader)
        seen: set[str] = set()
        for index, case in enumerate(cases):
            if case.name and case.name in seen:
                where = Place(value[index], "name", case.place)
                reader.report("DSL017", f"another case is named `{case.name[:80]}`", where)
            seen.add(case.name)
        return cases

    def schema(self, definitions: Definitions) -> JsonSchema:
        """An array of cases."""
        return self._list.schema(definitions)

    def words(self) -> str:
        """Cases."""
        return self._list.words()


@model
class SuiteSpec(Model):
    """The playbook under test, and the cases."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("playbook", "file")),)

    playbook: str | None = key(PathShape(), "catalog path of the playbook", default=None)
    file: str | None = key(Text(), "file of the playbook", default=None)
    gate: bool = key(Flag(), "must pass before a version becomes `latest`", default=False)
    cases: tuple[Case, ...] = key(Cases(), "the cases")


@model
class PlaybookTest(Model):
    """Tests of one playbook: the real engine, virtual time, no network."""

    api_version: str = key(Text(), "`noetl.io/v2`", name="apiVersion", code="DSL023")
    kind: str = key(Text(), "`PlaybookTest`", code="DSL021")
    metadata: Metadata = key(Of(Metadata), "name, path, labels")
    spec: SuiteSpec = key(Of(SuiteSpec), "the playbook and the cases")
