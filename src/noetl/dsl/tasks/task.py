"""What every task of a step shares: auth, input, output, rules, retry, limits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from noetl.dsl.shape import (
    ByType,
    Constraint,
    Data,
    Definitions,
    Flag,
    JsonSchema,
    ListOf,
    MapOf,
    Model,
    Name,
    Needs,
    Number,
    Of,
    OlderKey,
    Text,
    WhenThen,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import RULE, TASK_SET, WORKER
from noetl.dsl.shape.units import Condition, Duration, SetMap, Size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place

MOST_RULES = 100
INLINE_MOST = 65_536
_BACKOFF = choice("none", "fixed", "linear", "exponential")


@model
class Action(Model):
    """What a matched rule does with the outcome of a task."""

    older: ClassVar[Mapping[str, OlderKey]] = {
        "set_ctx": OlderKey(Data(only="map"), "`set` with `ctx.`"),
        "set_iter": OlderKey(Data(only="map"), "`set` with `iter.`"),
    }

    constraints: ClassVar[tuple[Constraint, ...]] = (Needs(("do", "jump"), "to", "DSL037"),)

    do: Literal["continue", "retry", "jump", "break", "fail"] = key(
        choice("continue", "retry", "jump", "break", "fail"),
        "continue keeps the result, retry tries again, jump goes to a task, break ends the "
        "pipeline, fail fails the step",
        default="continue",
    )
    set: Mapping[str, Any] = key(SetMap(TASK_SET), "values to keep", default_factory=dict)
    attempts: int | str | None = key(
        whole(1, 100, role=RULE), "total tries of `retry` (3)", default=None
    )
    backoff: str | None = key(_BACKOFF, "how the delay grows (none)", default=None)
    delay: float | str | None = key(
        Duration(RULE, zero=True), "first delay in seconds (1.0)", default=None
    )
    max_delay: float | str | None = key(
        Duration(RULE, zero=True), "longest delay in seconds (300)", default=None
    )
    jitter: float | None = key(Number(0, 1), "share of the delay that varies (0.1)", default=None)
    to: str | None = key(Name(), "target of `jump`: a task, or `previous`", default=None)
    loop: bool = key(Flag(), "with `break`: end the loop too", default=False)
    message: str | None = key(Text(TASK_SET), "message of `fail`", default=None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When the condition holds (always, without one), do the action."""

    when: bool | str | None = None
    then: Action = dataclasses.field(default_factory=Action)
    place: Place = dataclasses.field(compare=False, repr=False)


@model
class RuleForm(Model):
    """A rule with a condition, or without one a rule that always matches."""

    when: bool | str | None = key(Condition(RULE), "when the rule matches", default=None)
    then: Action = key(Of(Action), "what to do then")


class RuleShape(WhenThen):
    """A rule over the outcome of a task."""

    def __init__(self) -> None:
        super().__init__(RuleForm, Action)

    def read(self, value: Any, place: Place, reader: Reader) -> Rule:  # noqa: ANN401 - see Shape
        """Read any of the accepted forms into one rule."""
        when, then = self.parts(value, place, reader)
        return Rule(when=when, then=then, place=place)


@model
class TaskPolicy(Model):
    """Rules over the outcome of a task; the first match wins."""

    on_unmatched: Literal["continue", "fail"] = key(
        choice("continue", "fail"), "fail also fails an unmatched ok outcome", default="continue"
    )
    rules: tuple[Rule, ...] = key(
        ListOf(RuleShape(), most=MOST_RULES), "rules in order", default=()
    )


@model
class Retry(Model):
    """Short form of a last rule that retries errors."""

    attempts: int | str = key(whole(1, 100, role=RULE), "total tries", default=3)
    delay: float | str | None = key(
        Duration(RULE, zero=True),
        "first delay in seconds (1.0; 0 without `backoff`)",
        default=None,
    )
    backoff: str = key(_BACKOFF, "how the delay grows", default="none")
    max_delay: float | str = key(Duration(RULE, zero=True), "longest delay", default=300.0)
    jitter: float = key(Number(0, 1), "share of the delay that varies", default=0.1)
    kinds: tuple[str, ...] = key(
        ListOf(Text()), "error kinds to retry (default: the retryable ones)", default=()
    )


@model
class Timeout(Model):
    """Limits of one network call, in seconds."""

    connect: float | str | None = key(Duration(WORKER), "until connected", default=None)
    read: float | str | None = key(Duration(WORKER), "between two bytes", default=None)
    total: float | str | None = key(Duration(WORKER), "of the whole call", default=None)


TIMEOUT = ByType(text=Duration(WORKER), number=Duration(WORKER), map=Of(Timeout))


@model
class TaskSpec(Model):
    """Limits and rules of one task."""

    timeout: Any = key(
        TIMEOUT, "same as the task's `timeout`", default=None, aliases=("timeout_s",)
    )
    policy: TaskPolicy | None = key(Of(TaskPolicy), "rules over the outcome", default=None)
    retry: Retry | None = key(Of(Retry), "retry errors", default=None)
    idempotent: bool = key(Flag(), "false: never run again after its worker was lost", default=True)


@model
class Store(Model):
    """Where a large result is kept.

    Large is what is over `inline_max_bytes`. `auto`: by its size. `kv`, `db`: a row of the server.
    `object`, `disk`: the platform's object store. `s3`, `gcs`: a bucket of the author's own; a map
    of `uri`, `store`, `size`, `sha256`, `content_type` and `compression` stands in its place, and
    an `artifact` with the same credential reads it. `eventlog`: nowhere, the step fails.
    """

    kind: str = key(
        choice("auto", "memory", "kv", "disk", "object", "s3", "gcs", "db", "duckdb", "eventlog"),
        "kind of store; `memory` and `duckdb` are refused at registration, since no other worker "
        "could read what is kept there",
        default="auto",
    )
    driver: str | None = key(
        Text(), "refused at registration: there is one driver of each kind", default=None
    )
    bucket: str | None = key(Text(WORKER), "bucket of `s3` or `gcs`", default=None)
    prefix: str | None = key(Text(WORKER), "how keys in the bucket begin", default=None)
    ttl: float | str | None = key(
        Duration(WORKER),
        "how long it is kept; in a bucket, what its metadata says for the bucket's own rules",
        default=None,
    )
    compression: str = key(
        choice("none", "gzip", "lz4", "zstd"),
        "how objects are packed, the database packs rows itself; `lz4` is refused at registration, "
        "since no library for it is installed",
        default="none",
    )
    credential: str | None = key(
        Text(WORKER), "credential of the bucket", default=None, aliases=("auth",)
    )


@model
class Accumulate(Model):
    """Collects results over iterations or pages."""

    enabled: bool = key(Flag(), "on or off", default=True)
    strategy: str = key(choice("append", "replace", "merge", "concat"), "how", default="append")
    merge_path: str | None = key(Text(), "path of the list to merge", default=None)
    manifest_as: str | None = key(Name(), "name of the manifest", default=None)
    on_success: bool = key(Flag(), "collect successes", default=True)
    on_error: bool = key(Flag(), "collect failures", default=False)
    max_items: int | None = key(whole(1), "most items", default=None)


@model
class SelectPath(Model):
    """One selected field."""

    path: str = key(Text(pattern=r"^\$?[A-Za-z0-9_.\[\]*-]*$"), "path such as `$.a.b`")
    as_: str = key(Name(), "name of the field", name="as")


class SelectShape:
    """Fields that stay readable without a fetch: a list of names, of {path, as}, or a map."""

    documented: ClassVar[type[Model]] = SelectPath
    _item = ByType(text=Text(), map=Of(SelectPath))
    _list = ListOf(_item)
    _map = MapOf(Text())

    def read(self, value: Any, place: Place, reader: Reader) -> dict[str, str]:  # noqa: ANN401 - see Shape
        """Read any of the forms into one map of name to path."""
        if isinstance(value, dict):
            return self._map.read(value, place, reader)
        chosen: dict[str, str] = {}
        for item in self._list.read(value, place, reader):
            if isinstance(item, SelectPath):
                chosen[item.as_] = item.path
            else:
                path = item if item.startswith("$") else f"$.{item}"
                chosen[path.rsplit(".", 1)[-1]] = path
        return chosen

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Any of the forms."""
        return {"anyOf": [self._list.schema(definitions), self._map.schema(definitions)]}

    def words(self) -> str:
        """A selection."""
        return "list of names or {path, as}, or map of name to path"


@model
class Output(Model):
    """How a result is stored and what of it stays readable at once."""

    store: Store | None = key(Of(Store), "where a large result is kept", default=None)
    select: Mapping[str, str] = key(
        SelectShape(),
        "fields readable without a fetch",
        default_factory=dict,
        aliases=("output_select",),
    )
    accumulate: Accumulate | None = key(Of(Accumulate), "collect results", default=None)
    inline_max_bytes: int = key(Size(most=INLINE_MOST), "inline limit", default=INLINE_MOST)
    preview_max_bytes: int = key(Size(most=INLINE_MOST), "size of the preview", default=1024)
    scope: str = key(
        choice("step", "execution", "workflow", "permanent"),
        "with whose end it is deleted: its run; `workflow`: the root run; `step`: its run as soon "
        "as that has ended, since who reads it until then is not known before",
        default="execution",
    )
    as_: str | None = key(
        Name(), "name of the stored result; the step's without one", name="as", default=None
    )


AUTH = ByType(text=Text(WORKER), map=Data(WORKER, only="map"))


@model
class Task(Model):
    """One tool call: keys that every kind shares."""

    older: ClassVar[Mapping[str, OlderKey]] = {
        "retry": OlderKey(Data(only="map"), "`spec.retry`"),
        "set_ctx": OlderKey(Data(only="map"), "`set` with `ctx.`"),
        "set_iter": OlderKey(Data(only="map"), "`set` with `iter.`"),
        "output_select": OlderKey(SelectShape(), "`output.select`"),
    }

    kind: str = key(Text(), "what the task calls")
    name: str = key(Name(), "name of the task in its pipeline", default="")
    desc: str | None = key(Text(), "what it is for", default=None)
    auth: Any = key(AUTH, "credential alias, or a map", default=None, aliases=("credential",))
    input: Mapping[str, Any] = key(
        Data(WORKER, only="map"),
        "values bound for the task; they are what the tool receives",
        default_factory=dict,
        aliases=("args",),
    )
    set: Mapping[str, Any] = key(SetMap(TASK_SET), "values to keep", default_factory=dict)
    output: Output | None = key(Of(Output), "how the result is stored", default=None)
    timeout: Any = key(
        TIMEOUT, "limit of one try, in seconds", default=None, aliases=("timeout_seconds",)
    )
    spec: TaskSpec | None = key(Of(TaskSpec), "rules, retry, idempotency", default=None)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules over this task's outcome."""
        return self.spec.policy.rules if self.spec and self.spec.policy else ()
