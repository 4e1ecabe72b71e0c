"""Pages of the language reference, made from the models that the parser reads with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from noetl.dsl.codes import CODES, severity_of
from noetl.dsl.explain import explain, model_of
from noetl.dsl.kinds import KINDS
from noetl.dsl.shape import Fields, Model
from noetl.dsl.tasks import KINDS as TOOLS
from noetl.dsl.tasks.task import Task
from noetl.dsl.template import FILTERS, PREDICATES

if TYPE_CHECKING:
    from collections.abc import Iterator


def kind_lines(name: str) -> list[str]:
    """The reference of one kind: a table for every map that may occur in it."""
    kind = KINDS[name.lower()]
    versions = " or ".join(f"`{version}`" for version in kind.versions)
    lines = [f"`kind: {kind.name}`, `apiVersion` {versions}.", ""]
    for model in models_below(kind.model):
        lines += model_lines(model)
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


def tool_lines() -> list[str]:
    """The keys that every task takes, then the kinds."""
    lines = [
        "A tool is a map with `kind`.",
        "A step's `tool` is one tool or a list of tools (a pipeline).",
        "Keys that every kind takes stand first.",
        "",
        *model_lines(Task),
    ]
    seen: set[type[Model]] = {Task}
    for kind, model in TOOLS.items():
        found = explain(f"tool.{kind}")
        lines += [f"## kind: {kind}", "", found.text if found else "", ""]
        lines += model_lines(model, without=Task)[4:]
        for inner in models_below(model):
            if inner is not model and inner not in seen and inner not in set(models_below(Task)):
                seen.add(inner)
                lines += ["#" + line if line.startswith("## ") else line
                          for line in model_lines(inner)]  # fmt: skip
    return lines


def code_lines() -> list[str]:
    """One row per code: cause, example, remedy."""
    rows = ["| code | severity | cause | example | remedy |", "|---|---|---|---|---|"]
    for code, about in CODES.items():
        example = about.example.replace("|", "\\|").replace("\n", " ↵ ")
        rows.append(
            f'| <a id="{code.lower()}"></a>`{code}` | {severity_of(code)} | {about.cause} '
            f"| `{example}` | {about.remedy} |"
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
