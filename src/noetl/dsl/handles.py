"""Handles: the names under which the secrets of a `secrets` task stand in the keychain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from noetl.dsl.tasks import Secrets
from noetl.dsl.template import is_template

if TYPE_CHECKING:
    from noetl.dsl.playbook.document import Playbook

ENV: Final = "env"
_VERSION = re.compile(r"/versions/[^/]*$")
_NO_NAME = re.compile(r"\W+", re.ASCII)


def handle_of(name: str, provider: str) -> str:
    """The handle of a secret: the last part of its name, as a template can write it.

    A variable of the environment is a secret of its own name already.
    """
    if provider == ENV:
        return name
    last = _VERSION.sub("", name).rstrip("/").rpartition("/")[2]
    word = _NO_NAME.sub("_", last).strip("_") or "secret"
    return f"_{word}" if word[0].isdigit() else word


def handles_of(playbook: Playbook) -> tuple[frozenset[str], bool]:
    """The handles that a playbook makes, and whether it makes others that only a run knows."""
    tools = [task for step in playbook.workflow for task in step.tools]
    tools += [entry.tool for entry in playbook.workbook]
    named = [(task.name, task.provider) for task in tools if isinstance(task, Secrets)]
    fixed = [handle_of(*each) for each in named if not is_template(each[0])]
    return frozenset(fixed), len(fixed) < len(named)
