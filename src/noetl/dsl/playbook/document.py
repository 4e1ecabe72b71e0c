"""Models of `kind: Playbook`: what the author wrote, in its one normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from noetl.dsl.metadata import Metadata
from noetl.dsl.playbook.inputs import InputField
from noetl.dsl.playbook.pipeline import TaskShape
from noetl.dsl.playbook.policy import Failure
from noetl.dsl.playbook.step import Step, StepShape
from noetl.dsl.shape import (
    ByType,
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
    NotBoth,
    Number,
    Of,
    OlderKey,
    Text,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import SERVER, WORKER, WORKLOAD, Reader
from noetl.dsl.shape.units import Duration, Scalar
from noetl.dsl.tasks.task import Output, TaskSpec
from noetl.dsl.yaml import ROOT, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.diagnostics import Diagnostic

MOST_STEPS = 2_000
_TEN_SECONDS = (
    r"^([1-9][0-9]+(\.[0-9]+)?s|[0-9]*[1-9][0-9]*(\.[0-9]+)?(m|h|d)|[1-9][0-9]{4,}(\.[0-9]+)?ms)$"
)
_MAP = Data(WORKER, only="map")
_TEXT = Text(WORKER)


@model
class KeychainEntry(Model):
    """A secret that tasks read as `keychain.<name>.<field>`."""

    name: str = key(Name(), "name of the entry")
    kind: str = key(
        choice("bearer", "static", "oauth2", "basic", "api_key", "secret_manager", "credential",
               "google_id_token"),
        "kind of secret", aliases=("type",),
    )  # fmt: skip
    scope: str = key(
        choice("local", "shared", "global", "execution", "catalog", "all"),
        "who shares it (local = execution, shared = catalog, global = all)",
        default="local",
    )
    credential: str | None = key(_TEXT, "credential alias", default=None)
    token_type: str | None = key(Text(), "type of the token", default=None)
    token: str | None = key(_TEXT, "the token", default=None)
    map: Mapping[str, Any] = key(_MAP, "field to value", default_factory=dict)
    endpoint: str | None = key(_TEXT, "where a token is fetched", default=None, aliases=("url",))
    method: str | None = key(Text(), "HTTP method", default=None)
    headers: Mapping[str, Any] = key(_MAP, "HTTP headers", default_factory=dict)
    data: Any = key(Data(WORKER), "HTTP body", default=None)
    provider: str | None = key(
        choice("gcp", "aws", "azure", "vault", "k8s", "env"), "secret manager", default=None
    )
    auth: Any = key(ByType(text=_TEXT, map=_MAP), "credential of the provider", default=None)
    region: str | None = key(_TEXT, "region", default=None)
    residency: str = key(choice("none", "advisory", "strict"), "residency", default="none")
    allowed_regions: tuple[str, ...] = key(ListOf(Text()), "regions", default=())
    no_broker_fallback: bool = key(Flag(), "never through the broker", default=False)
    auto_renew: bool = key(Flag(), "renew before it expires", default=False)
    ttl: Any = key(Duration(WORKER), "how long it is kept", default=None, aliases=("ttl_seconds",))


def entry_faults(entry: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """What is wrong with a keychain entry that came as data, not as text."""
    document = load("{}")
    Of(KeychainEntry).read(dict(entry), ROOT, Reader(document))
    return tuple(one for one in document.findings.sorted() if one.severity == "error")


@model
class WorkbookTask(Model):
    """A task that steps use by name."""

    older: ClassVar[Mapping[str, OlderKey]] = {
        "assert": OlderKey(Data(), "a rule on the tool"),
    }

    name: str = key(Name(), "name of the task")
    desc: str | None = key(Text(), "what it is for", default=None)
    tool: Any = key(TaskShape(), "the tool")


class WorkbookShape(ListOf):
    """The list of tasks; the schema also knows the older map."""

    def __init__(self) -> None:
        super().__init__(Of(WorkbookTask))

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A list, or the older map of name to tool."""
        tool = TaskShape().schema(definitions)
        wrapped = {"type": "object", "required": ["tool"], "properties": {"tool": tool}}
        older = {
            "type": "object",
            "deprecated": True,
            "description": "Older form; write a list of `{name, tool}`.",
            "additionalProperties": {"anyOf": [tool, wrapped]},
        }
        return {"anyOf": [super().schema(definitions), older]}


@model
class Requires(Model):
    """What a run needs."""

    tools: tuple[str, ...] = key(ListOf(Text()), "tool kinds", default=())
    features: tuple[str, ...] = key(ListOf(Text()), "features", default=())


@model
class PluginRef(Model):
    """A WebAssembly plug-in."""

    path: str = key(Text(), "path of the plug-in")
    version: Any = key(Scalar(), "version", default=None)


@model
class Concurrency(Model):
    """How many runs may share a key."""

    key_: str = key(Text(SERVER), "what runs are counted by", name="key")
    limit: int = key(whole(1, 100_000), "runs at once", default=1)
    on_limit: Literal["queue", "cancel_previous", "reject"] = key(
        choice("queue", "cancel_previous", "reject"), "what one more does", default="queue"
    )


@model
class RunLimits(Model):
    """Bounds of one run."""

    max_steps: int = key(whole(1, 10_000_000), "step visits", default=100_000)
    max_events: int = key(whole(1, 100_000_000), "events", default=2_000_000)


@model
class RunPolicy(Model):
    """Defaults and bounds of a run."""

    failure: Failure | None = key(Of(Failure), "across branches", default=None)
    defaults: TaskSpec | None = key(Of(TaskSpec), "`spec` of every task", default=None)
    results: Output | None = key(Of(Output), "`output` of every task", default=None)
    limits: RunLimits | None = key(Of(RunLimits), "bounds", default=None)


@model
class ExecutorSpec(Model):
    """How a run starts, ends and is bounded."""

    entry_step: str | None = key(Name(), "first step", default=None)
    final_step: str | None = key(Name(), "run once when all else has ended", default=None)
    pool: str | None = key(Text(), "default worker pool", default=None)
    timeout: Any = key(Duration(), "limit of the run", default=None)
    strict_inputs: bool = key(Flag(), "reject keys that `inputs` lacks", default=False)
    concurrency: Concurrency | None = key(Of(Concurrency), "runs per key", default=None)
    no_next_is_error: bool = key(Flag(), "no matching arc is a failure", default=False)
    policy: RunPolicy | None = key(Of(RunPolicy), "defaults and bounds", default=None)


@model
class Executor(Model):
    """Where and how the playbook runs."""

    profile: str = key(choice("local", "distributed", "auto"), "where it runs", default="auto")
    version: str | None = key(
        Text(pattern=r"^noetl-runtime/1(\..*)?$", code="DSL060"), "`noetl-runtime/1`", default=None
    )
    requires: Requires | None = key(Of(Requires), "what a run needs", default=None)
    runtime: str = key(choice("yaml", "wasm"), "how it runs", default="yaml")
    plugin: PluginRef | None = key(Of(PluginRef), "the plug-in of `wasm`", default=None)
    capabilities: tuple[str, ...] = key(ListOf(Text()), "what it may do", default=())
    compile: str | None = key(choice("off", "auto", "required"), "compile it", default=None)
    spec: ExecutorSpec | None = key(Of(ExecutorSpec), "entry, end, bounds", default=None)


@model
class Trigger(Model):
    """A schedule that starts the playbook."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("cron", "interval"), "DSL070"),)

    kind: str = key(choice("cron"), "kind of trigger", default="cron")
    name: str = key(Name(), "name of the schedule", default="")
    cron: str | None = key(Text(), "five fields, names and `@hourly` forms", default=None)
    interval: Any = key(
        Duration(least=10, code="DSL070", pattern=_TEN_SECONDS), "at least 10 s", default=None
    )
    timezone: str = key(Text(), "IANA name", default="UTC")
    input: Mapping[str, Any] = key(Data(only="map"), "payload of the run", default_factory=dict)
    enabled: bool = key(Flag(), "on or off", default=True)
    overlap: str = key(
        choice("skip", "queue", "allow", "cancel_previous"), "while one still runs", default="skip"
    )
    catchup: str = key(choice("none", "latest", "all"), "after a gap", default="latest")
    jitter_s: float = key(Number(0, 86_400), "random delay in seconds", default=0)
    start_at: str | None = key(Text(), "not before", default=None)
    end_at: str | None = key(Text(), "not after", default=None)
    pool: str | None = key(Text(), "worker pool", default=None)


@model
class RunOutput(Model):
    """What the run returns, and its schema."""

    value: Any = key(Data(SERVER), "templates of the result", default=None)
    schema: Mapping[str, Any] | None = key(
        Data(only="map"), "JSON Schema of the result", default=None
    )


@model
class Playbook(Model):
    """A workflow: steps that call tools, with routing, loops and state."""

    constraints: ClassVar[tuple[Constraint, ...]] = (NotBoth(("output", "result"), "DSL035"),)

    api_version: str = key(Text(), "`noetl.io/v2`", name="apiVersion", code="DSL023")
    kind: str = key(Text(), "`Playbook`", code="DSL021")
    metadata: Metadata = key(Of(Metadata), "name, path, labels")
    inputs: Mapping[str, InputField] = key(
        MapOf(Of(InputField), named=True), "typed schema of the payload", default_factory=dict
    )
    workload: Mapping[str, Any] = key(
        Data(WORKLOAD, only="map"), "default values; the payload is merged over them",
        default_factory=dict,
    )  # fmt: skip
    keychain: tuple[KeychainEntry, ...] = key(
        ListOf(Of(KeychainEntry)), "secrets that tasks read", default=()
    )
    workbook: tuple[WorkbookTask, ...] = key(
        WorkbookShape(), "tasks that steps use by name", default=()
    )
    executor: Executor | None = key(Of(Executor), "where and how it runs", default=None)
    triggers: tuple[Trigger, ...] = key(ListOf(Of(Trigger)), "schedules that start it", default=())
    output: RunOutput | None = key(Of(RunOutput), "what the run returns", default=None)
    result: Any = key(Data(SERVER), "short form of `output.value`", default=None)
    workflow: tuple[Step, ...] = key(ListOf(StepShape(), least=1, most=MOST_STEPS), "the steps")

    @property
    def path(self) -> str:
        """The catalog identity."""
        return self.metadata.path or self.metadata.name

    @property
    def entry(self) -> str:
        """The step that runs first."""
        spec = self.executor.spec if self.executor else None
        if spec and spec.entry_step:
            return spec.entry_step
        names = [step.name for step in self.workflow]
        if "start" in names or not names:
            return "start"
        return names[0]

    @property
    def final(self) -> str | None:
        """The step that runs last, if one is declared."""
        spec = self.executor.spec if self.executor else None
        return spec.final_step if spec else None

    def step(self, name: str) -> Step | None:
        """A step by its name."""
        return next((step for step in self.workflow if step.name == name), None)
