"""Pages of the language reference, made from the models that the parser reads with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from noetl.dsl.codes import CODES, severity_of
from noetl.dsl.documents.credential import Credential
from noetl.dsl.documents.credential_types import TYPES
from noetl.dsl.explain import explain, model_of
from noetl.dsl.kinds import KINDS
from noetl.dsl.playbook.pipeline import SEQUENCE_KEYS
from noetl.dsl.shape import Fields, Model
from noetl.dsl.tasks import KINDS as TOOLS
from noetl.dsl.tasks.about import about
from noetl.dsl.tasks.notes import NOTES
from noetl.dsl.tasks.task import Task
from noetl.dsl.template import FILTERS, PREDICATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.tasks.about import About


def kind_lines(name: str) -> list[str]:
    """The reference of one kind: a table for every map that may occur in it."""
    kind = KINDS[name.lower()]
    versions = " or ".join(f"`{version}`" for version in kind.versions)
    lines = [f"`kind: {kind.name}`, `apiVersion` {versions}.", ""]
    for model in models_below(kind.model):
        lines += model_lines(model)
    return [*lines, *_types()] if kind.model is Credential else lines


def _types() -> list[str]:
    """The fields of each type of credential."""
    lines = ["`data` holds the fields of its `type` and no others:", ""]
    for cls in dict.fromkeys(TYPES.values()):
        names = ", ".join(f"`{name}`" for name, found in TYPES.items() if found is cls)
        lines += [f"## Type {names}", *model_lines(cls)[1:]]
    return lines


def models_below(root: type[Model]) -> Iterator[type[Model]]:
    """A model and every model that its keys lead to, each once, in reading order."""
    waiting, seen = [root], {root}
    while waiting:
        model = waiting.pop(0)
        yield model
        for item in Fields.of(model).keys.values():
            inner = model_of(item.shape)
            if inner is not None and inner not in seen and inner is not Task:
                seen.add(inner)
                waiting.append(inner)


def model_lines(model: type[Model], *, without: type[Model] | None = None) -> list[str]:
    """One table: key, what it takes, what stands when it is absent, what it means."""
    shared = Fields.of(without).keys if without else {}
    rows = []
    for attr, item in Fields.of(model).keys.items():
        if shared.get(attr) == item:
            continue
        names = ", ".join(f"`{name}`" for name in (item.name, *item.aliases))
        takes = item.shape.words().replace("|", "\\|")
        rows.append(f"| {names} | {takes} | {default_of(model, attr)} | {sentence(item.doc)} |")
    about = (model.__doc__ or "").strip().split("\n")[0]
    if not rows:
        return [f"## {model.__name__}", "", about, ""]
    head = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    older = [f"- `{name}`: older form; write {key.instead}." for name, key in model.older.items()]
    return [
        f"## {model.__name__}",
        "",
        about,
        "",
        *head,
        *rows,
        "",
        *older,
        *([""] if older else []),
    ]


def default_of(model: type[Model], attr: str) -> str:
    """What stands when the key is absent."""
    field = next(item for item in dataclasses.fields(model) if item.name == attr)
    if Fields.of(model).keys[attr].required:
        return "required"
    if field.default is dataclasses.MISSING or field.default in (None, (), ""):
        return "-"
    value = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def sentence(text: str) -> str:
    """A key's words as a table cell."""
    return text.replace("|", "\\|")


def tools_lines() -> list[str]:
    """The list of kinds, and the keys that every task takes."""
    rows = (
        f"| [`{kind}`](tools/{kind}.md) | {_first(kind)} | {_installed(kind)} |" for kind in TOOLS
    )
    return [
        "A tool is a map with `kind`.",
        "A step's `tool` is one tool or a list of tools (a pipeline).",
        "",
        "| kind | what it does | comes with |",
        "|---|---|---|",
        *rows,
        f"| [`task_sequence`](tools/task_sequence.md) | {_first('task_sequence')} | NoETL |",
        "",
        "Keys that every kind takes:",
        "",
        *model_lines(Task),
    ]


def tool_lines(kind: str) -> list[str]:
    """One kind: what it takes, what it returns, how it fails, what bounds it."""
    model, told = TOOLS[kind], about(kind)
    found = explain(f"tool.{kind}")
    lines = [found.text if found else "", "", *_came_with(told), "## Keys", ""]
    lines += ["It takes the [keys of every task](../tools.md#task) and these:", ""]
    lines += model_lines(model, without=Task)[4:]
    shared = set(models_below(Task))
    for inner in models_below(model):
        if inner is not model and inner not in shared:
            lines += [f"#{line}" if line.startswith("## ") else line for line in model_lines(inner)]
    if kind in NOTES:
        lines += ["## Notes", "", *(f"- {line}" for line in NOTES[kind]), ""]
    lines += ["## Result", "", *_returned(told)]
    lines += ["## Errors", "", *_failing(told)]
    if told.limits:
        lines += ["## Limits", "", *(f"- {line}" for line in told.limits), ""]
    if told.example:
        path = f"../../../examples/{told.example}"
        lines += ["## Example", "", f"[examples/{told.example}]({path})", ""]
    return lines


def sequence_lines() -> list[str]:
    """A pipeline written as one tool: no model of its own, it is flattened into its step."""
    known = Fields.of(Task).keys
    rows = [
        f"| {', '.join(f'`{name}`' for name in (item.name, *item.aliases))} "
        f"| {sentence(item.shape.words())} | - | {sentence(item.doc)} |"
        for item in (known[name] for name in SEQUENCE_KEYS)
    ]
    return [
        _first("task_sequence"),
        "",
        "## Keys",
        "",
        "| key | takes | default | meaning |",
        "|---|---|---|---|",
        "| `tasks` | list of tools | required | the tasks, in order |",
        *rows,
        "| `spec` | map of `timeout`, `idempotent` | - | limits of the pipeline |",
        "",
        "These keys move to its step; a `task_sequence` inside of another is refused.",
        "",
        "## Result",
        "",
        "A map of the name of each task to its data.",
        "",
        "## Errors",
        "",
        "The error of the task that failed, with `failed_task` and the results so far.",
        "",
        "## Limits",
        "",
        "- 1,000,000 runs of tasks (`NOETL_TASK_SEQUENCE_MAX_ITERATIONS`), then `pipeline_limit`.",
        "",
        "## Example",
        "",
        "[examples/pipeline_with_retry.yaml](../../../examples/pipeline_with_retry.yaml)",
        "",
    ]


def _first(kind: str) -> str:
    found = explain(f"tool.{kind}")
    return sentence(found.text.split("\n")[0]) if found else ""


def _installed(kind: str) -> str:
    extra = about(kind).extra
    return f"`noetl[{extra}]`" if extra else "NoETL"


def _came_with(told: About) -> list[str]:
    if not told.is_built:
        return ["No worker of this release runs it yet; a playbook that has it is valid.", ""]
    if not told.extra:
        return []
    return [f'Its packages come with an extra: `pip install "noetl[{told.extra}]"`.', ""]


def _returned(told: About) -> list[str]:
    if not told.returns:
        return [told.data, ""]
    rows = (f"| `{name}` | {sentence(meaning)} |" for name, meaning in told.returns.items())
    return ["| field of `output.data` | meaning |", "|---|---|", *rows, ""]


def _failing(told: About) -> list[str]:
    limit = (
        "no limit"
        if told.timeout_s is None
        else f"{told.timeout_s:g} s, unless `timeout` says more"
    )
    kinds = ", ".join(f"`{kind}`" for kind in told.every_error)
    return [f"Kinds: {kinds} ([what they mean](../errors.md)).", f"Time of one try: {limit}.", ""]


def code_lines() -> list[str]:
    """One row per code: cause, example, remedy."""
    rows = ["| code | severity | cause | example | remedy |", "|---|---|---|---|---|"]
    for code, told in CODES.items():
        example = told.example.replace("|", "\\|").replace("\n", " ↵ ")
        rows.append(
            f'| <a id="{code.lower()}"></a>`{code}` | {severity_of(code)} | {told.cause} '
            f"| `{example}` | {told.remedy} |"
        )
    return [
        "Every finding of `noetl validate` and `noetl lint` has one of these codes.",
        "Errors refuse the document; warnings do not.",
        "A comment `# noetl: ignore DSL205` on the line silences one warning there.",
        "",
        *rows,
    ]


def template_lines() -> list[str]:
    """The names of filters and tests."""
    return [
        "How templates behave is told in [the explanation](../explanation/templates.md).",
        "",
        "## Filters",
        "",
        ", ".join(f"`{name}`" for name in sorted(FILTERS)),
        "",
        "## Tests",
        "",
        ", ".join(f"`{name}`" for name in sorted(PREDICATES)),
    ]
