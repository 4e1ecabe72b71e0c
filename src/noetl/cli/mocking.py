"""The file of `--mock`: mocks in the form that tests have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noetl.cli.failures import CommandFailed
from noetl.cli.files import read

if TYPE_CHECKING:
    from noetl.dsl.documents.testcase import Case


def case_of(name: str) -> Case:
    """The case that a file stands for: a list of mocks, a map with `mocks`, or a test's first."""
    from noetl.cli.parsing import parsed_here
    from noetl.dsl.documents.testcase import PlaybookTest
    from noetl.dsl.parse import parse
    from noetl.dsl.yaml import load

    source = read(name)
    root = load(source.data).root
    if isinstance(root, dict) and root.get("kind") == "PlaybookTest":
        parsed = parsed_here(source.data)
    else:
        case = {"mocks": root} if isinstance(root, list) else root
        parsed = parse(json.dumps(_suite(case if isinstance(case, dict) else {"mocks": root})))
    if isinstance(parsed.model, PlaybookTest):
        return parsed.model.spec.cases[0]
    first = next(iter(parsed.errors), None)
    why = f": {first.message}" if first else ""
    hint = "it is a list of mocks, or a map with `mocks`, as in a PlaybookTest"
    raise CommandFailed("invalid_playbook", f"{name} holds no mocks{why}", hint=hint)


def _suite(case: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "PlaybookTest",
        "metadata": {"name": "mocks", "path": "mocks"},
        "spec": {"file": "mocks.yaml", "cases": [{"name": "mocks", **case}]},
    }
