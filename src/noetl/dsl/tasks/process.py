"""Kinds that run code: interpreters, shells, containers, agents, plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    AtLeastOne,
    ByType,
    Constraint,
    ExactlyOne,
    Flag,
    ListOf,
    MapOf,
    Model,
    Of,
    Text,
    Written,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import CODE, SHELL, WORKER
from noetl.dsl.tasks.shared import ANY, ENV, FILLED, MAP, TEXT, TEXTS, Process, Script, needed
from noetl.dsl.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping


@model
class Imported(Model):
    """What a name of the code stands for: a module, or a part of one."""

    from_: str | None = key(TEXT, "module that has it", name="from", default=None)
    import_: str | None = key(
        TEXT, "part of the module, or a module; without one, the name", name="import", default=None
    )


@model
class Python(Process):
    """Runs Python code in a child interpreter."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        ExactlyOne(("code", "script", "code_b64"), "DSL051"),
    )

    code: str | None = key(Text(CODE, filled=True), "the code; its value is `result`", default=None)
    code_b64: str | None = key(TEXT, "the code in base64", default=None)
    script: Script | None = key(Of(Script), "code that is fetched", default=None)
    libs: Any = key(
        ByType(map=MapOf(ByType(text=Text(), map=Written(Imported))), list=ListOf(Text())),
        "modules to import: {alias: module}, {name: {from, import}} or a list",
        default=None,
    )
    requirements: tuple[str, ...] = key(ListOf(Text()), "packages to install", default=())
    isolation: str = key(choice("warm", "fresh"), "fresh: a new interpreter", default="warm")
    template: bool = key(Flag(), "false: leave `{{` in the code alone", default=True)


@model
class Shell(Process):
    """Runs shell commands in a sandboxed child."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        ExactlyOne(("command", "cmds", "argv"), "DSL051"),
    )

    command: str | None = key(
        Text(SHELL, filled=True), "command line for `sh`", default=None, aliases=("cmd",)
    )
    cmds: tuple[str, ...] = key(ListOf(Text(SHELL)), "commands; stops at a failure", default=())
    argv: tuple[str, ...] = key(TEXTS, "program and arguments", default=())
    shell: str = key(choice("sh", "bash"), "which shell", default="sh")
    cwd: str | None = key(TEXT, "folder inside the work directory", default=None)
    stdin: str | None = key(TEXT, "standard input", default=None)


@model
class SecretKey(Model):
    """A value in a Secret of the cluster."""

    secret_name: str = key(TEXT, "name of the Secret")
    secret_key: str = key(TEXT, "key in it")


@model
class EnvVar(Model):
    """One environment variable of a container."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("value", "value_from")),)

    name: str = key(TEXT, "name of the variable")
    value: Any = key(ANY, "its value", default=None)
    value_from: SecretKey | None = key(Of(SecretKey), "where its value lies", default=None)


@model
class Resources(Model):
    """What a container asks for and may use at most: amounts as Kubernetes writes them."""

    requests: Mapping[str, Any] | None = key(MAP, "{cpu, memory} that it asks for", default=None)
    limits: Mapping[str, Any] | None = key(
        MAP, "{cpu, memory} that it may use (1 CPU, 1 Gi)", default=None
    )


@model
class Toleration(Model):
    """A taint of nodes that the job bears."""

    key_: str | None = key(TEXT, "key of the taint", name="key", default=None)
    operator: str | None = key(
        choice("Exists", "Equal", role=WORKER), "how it is compared (Equal)", default=None
    )
    value: str | None = key(TEXT, "value of the taint", default=None)
    effect: str | None = key(
        choice("NoSchedule", "PreferNoSchedule", "NoExecute", role=WORKER),
        "effect that is borne; without one, all", default=None,
    )  # fmt: skip
    toleration_seconds: int | str | None = key(
        whole(0, role=WORKER), "for how long", default=None, aliases=("tolerationSeconds",)
    )


@model
class EmptyDir(Model):
    """A folder that lives as long as the job."""

    medium: str | None = key(TEXT, "`Memory`: not on disk", default=None)
    size_limit: Any = key(ANY, "most bytes, as `1Gi`", default=None, aliases=("sizeLimit",))


@model
class Claim(Model):
    """A claim of a volume that lasts."""

    claim_name: str = key(TEXT, "name of the claim", aliases=("claimName",))
    read_only: bool | str = key(
        Flag(WORKER), "nothing is written to it", default=False, aliases=("readOnly",)
    )


@model
class FileItem(Model):
    """One value of a ConfigMap or a Secret as a file."""

    key_: str = key(TEXT, "key of the value", name="key")
    path: str = key(TEXT, "path of the file in the volume")
    mode: int | str | None = key(whole(0, 511, role=WORKER), "mode of the file", default=None)


_ITEMS = ListOf(Written(FileItem))


@model
class ConfigFiles(Model):
    """A ConfigMap as files."""

    name: str = key(TEXT, "name of the ConfigMap")
    items: Any = key(_ITEMS, "which values are files; without it, all", default=())
    default_mode: int | str | None = key(
        whole(0, 511, role=WORKER), "mode of the files", default=None, aliases=("defaultMode",)
    )
    optional: bool | str = key(Flag(WORKER), "it need not be there", default=False)


@model
class SecretFiles(Model):
    """A Secret as files."""

    secret_name: str = key(TEXT, "name of the Secret", aliases=("secretName",))
    items: Any = key(_ITEMS, "which values are files; without it, all", default=())
    default_mode: int | str | None = key(
        whole(0, 511, role=WORKER), "mode of the files", default=None, aliases=("defaultMode",)
    )
    optional: bool | str = key(Flag(WORKER), "it need not be there", default=False)


@model
class Volume(Model):
    """A volume of a job: a name, and one of the four kinds."""

    name: str = key(TEXT, "name of the volume")
    empty_dir: Any = key(Written(EmptyDir), "a folder of the job", default=None)
    persistent_volume_claim: Any = key(Written(Claim), "a volume that lasts", default=None)
    config_map: Any = key(Written(ConfigFiles), "a ConfigMap as files", default=None)
    secret: Any = key(Written(SecretFiles), "a Secret as files", default=None)


@model
class Mount(Model):
    """Where a volume appears in the container."""

    name: str = key(TEXT, "name of the volume")
    mount_path: str = key(TEXT, "absolute path, outside `/noetl`")
    read_only: bool | str = key(Flag(WORKER), "nothing is written there", default=False)
    sub_path: str | None = key(TEXT, "path in the volume", default=None)


@model
class Container(Task):
    """Runs a container job and waits for it without a slot."""

    image: str = needed(FILLED, "image")
    command: tuple[str, ...] = key(ListOf(TEXT, lone=True), "entry point", default=())
    arguments: tuple[str, ...] = key(ListOf(ANY), "arguments", name="args", default=())
    input: Mapping[str, Any] = key(MAP, "JSON input of the container", default_factory=dict)
    env: Any = key(
        ByType(list=ListOf(Of(EnvVar)), map=MAP), "environment of the container", default=None
    )
    resources: Resources | None = key(Of(Resources), "what it may use", default=None)
    service_account: str | None = key(TEXT, "service account", default=None)
    namespace: str | None = key(TEXT, "namespace", default=None)
    backoff_limit: int | str = key(whole(0, 100, role=WORKER), "retries of the job", default=0)
    restart_policy: str = key(choice("Never", "OnFailure"), "restart policy", default="Never")
    node_selector: Mapping[str, Any] | None = key(MAP, "node labels", default=None)
    tolerations: Any = key(ListOf(Written(Toleration)), "taints that it bears", default=())
    volumes: Any = key(ListOf(Written(Volume)), "volumes", default=())
    volume_mounts: Any = key(ListOf(Written(Mount)), "where they appear", default=())
    image_pull_policy: str | None = key(
        choice("Always", "IfNotPresent", "Never"), "pull policy", default=None
    )
    image_pull_secrets: tuple[str, ...] = key(TEXTS, "pull secrets", default=())
    ttl_seconds_after_finished: int | str = key(
        whole(0, role=WORKER), "how long the job is kept", default=3600
    )
    runtime: str = key(
        choice("auto", "kubernetes", "podman", "process"), "where it runs", default="auto"
    )


@model
class ScriptJob(Container):
    """The container that runs a script; the script decides its command, arguments and input."""

    kind: str = key(Text(), "always `container`", default="container")
    image: str = key(FILLED, "image", default="python:3.12-slim")
    install_dependencies: Any = key(
        ByType(flag=Flag(), list=TEXTS), "install what it needs", default=None
    )


@model
class ScriptTask(Process):
    """Runs a script file with an interpreter."""

    script: Any = needed(ByType(map=Of(Script), text=Text(SHELL)), "the script")
    interpreter: Any = key(
        ByType(text=TEXT, list=TEXTS), "python, bash, node, or a command", default="python"
    )
    args: Any = key(ByType(list=ANY, map=MAP), "arguments", default=None)
    input: Mapping[str, Any] = key(MAP, "values bound for the task", default_factory=dict)
    job: Mapping[str, Any] | None = key(
        Written(ScriptJob), "run it as a container job", default=None
    )
    install_dependencies: Any = key(
        ByType(flag=Flag(), list=ListOf(Text())), "install what it needs", default=None
    )


@model
class OnFailure(Model):
    """What is done when an agent has failed."""

    troubleshoot: str | None = key(
        TEXT, "path of a playbook that looks at it: `error.details.diagnosis`", default=None
    )


@model
class Agent(Task):
    """Runs an agent of a framework in a child."""

    framework: str = needed(choice("noetl", "langchain", "adk", "custom"), "framework")
    entrypoint: str | None = key(TEXT, "module:attr, or a playbook path", default=None)
    entrypoint_args: Any = key(ByType(map=MAP, list=ANY), "arguments", default=None)
    invoke_method: str | None = key(Text(), "method to call", default=None)
    payload: Any = key(ANY, "what the agent receives", default=None)
    invoke_kwargs: Mapping[str, Any] = key(MAP, "more arguments", default_factory=dict)
    requirements: tuple[str, ...] = key(ListOf(Text()), "packages to install", default=())
    on_failure: OnFailure | None = key(Of(OnFailure), "what a failure starts", default=None)
    env: Any = key(ENV, "environment", default=None)


@model
class Wasm(Task):
    """Runs a WebAssembly plug-in."""

    constraints: ClassVar[tuple[Constraint, ...]] = (AtLeastOne(("plugin", "module")),)

    plugin: Any = key(ByType(text=TEXT, map=MAP), "{path, version}", default=None)
    module: Any = key(ByType(text=TEXT, map=MAP), "{ref, digest}", default=None)
    entry: str = key(Text(), "function to call", default="run", aliases=("function",))
    capabilities: tuple[str, ...] = key(ListOf(Text()), "what it may do", default=())
    limits: Mapping[str, Any] | None = key(MAP, "{fuel, memory, deadline}", default=None)
