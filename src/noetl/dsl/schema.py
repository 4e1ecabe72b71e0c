"""JSON Schema of every kind, made from the models that the parser reads with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.kinds import KINDS, Kind
from noetl.dsl.playbook.document import Playbook
from noetl.dsl.shape import Definitions, Of, any_case_pattern
from noetl.dsl.tasks import KINDS as TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks.task import Task

BASE = "https://noetl.io/schema/v2"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def kinds() -> tuple[str, ...]:
    """The kinds of documents, as they are written."""
    return tuple(kind.name for kind in KINDS.values())


def schema(kind: str) -> dict[str, Any] | None:
    """The JSON Schema of one kind; None for a kind that does not exist."""
    found = KINDS.get(kind.lower())
    return None if found is None else _schema(found)


def _schema(kind: Kind) -> dict[str, Any]:
    definitions = Definitions()
    Of(kind.model).schema(definitions)
    root = definitions.defs.pop(kind.model.__name__)
    words = [kind.name, "Agent"] if kind.model is Playbook else [kind.name]
    root["properties"]["apiVersion"] |= {"enum": list(kind.versions)}
    root["properties"]["kind"] |= {"pattern": any_case_pattern(words)}
    return {
        "$schema": DIALECT,
        "$id": f"{BASE}/{kind.name}.json",
        "title": kind.name,
        **root,
        "$defs": definitions.defs,
    }


def tool_kinds() -> dict[str, str]:
    """The kinds of tools, each with one sentence."""
    return {kind: (model.__doc__ or "").split("\n")[0] for kind, model in TOOLS.items()}


def tool_schema(kind: str) -> dict[str, Any] | None:
    """The JSON Schema of the tools of one kind; None for a kind that does not exist."""
    found = TOOLS.get(kind)
    return None if found is None else task_schema(kind, found)


def task_schema(kind: str, found: type[Task]) -> dict[str, Any]:
    """The JSON Schema of the tasks that a model reads; of a plug-in, too."""
    definitions = Definitions()
    Of(found).schema(definitions)
    root = definitions.defs.pop(found.__name__)
    root["properties"]["kind"] |= {"const": kind}
    return {
        "$schema": DIALECT,
        "$id": f"{BASE}/tools/{kind}.json",
        "title": kind,
        **root,
        "$defs": definitions.defs,
    }


def plugin_schemas(models: Mapping[str, type[Task]]) -> dict[str, dict[str, Any]]:
    """The JSON Schemas of the kinds that plug-ins bring, as playbooks are judged by them."""
    return {kind: task_schema(kind, found) for kind, found in models.items() if kind not in TOOLS}
