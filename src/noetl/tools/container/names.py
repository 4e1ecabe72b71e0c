"""What a job is called: a name that every attempt makes again, and the marks that find it."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "noetl-container"
LONGEST: Final = 63
"""A job's name is a label of its pods, and a label has at most so many characters."""
SLUG: Final = 20
EXECUTION: Final = "noetl.execution-id"
STEP: Final = "noetl.step-name"
COMMAND: Final = "noetl.command-id"
KIND: Final = "noetl.tool-kind"
KEY: Final = "noetl.idempotency-key"
REPORTED: Final = "noetl.reported"
"""An annotation: the state that the server was told, so that nobody tells it again."""
SELECTOR: Final = f"{KIND}=container"
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def slug(text: str, most: int = SLUG) -> str:
    """The text as a piece of a name; one without a single letter or digit becomes digits."""
    found = _OTHER.sub("-", text.lower()).strip("-")[:most].strip("-")
    return found or _digest(text)


def job_name(step: str, execution_id: str, key: str, try_number: int) -> str:
    """The one name of a try: an attempt that comes later finds the job of the one before."""
    tail = f"{execution_id}-{_digest(f'{key}#{try_number}')}"
    room = LONGEST - len(PREFIX) - len(tail) - 2
    return f"{PREFIX}-{slug(step, min(SLUG, room))}-{tail}"


def labels(execution_id: str, step: str, command_id: str) -> dict[str, str]:
    """What a job is looked for by; no value is longer than a label may be."""
    return {
        EXECUTION: execution_id,
        STEP: slug(step, LONGEST),
        COMMAND: _digest(command_id, 16),
        KIND: "container",
    }


def notes(execution_id: str, step: str, command_id: str, key: str) -> dict[str, str]:
    """The same as they are, for whoever reports the job."""
    return {EXECUTION: execution_id, STEP: step, COMMAND: command_id, KEY: key}


def is_ours(found: Mapping[str, Mapping[str, str]], made: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the metadata of a job that is there are those of the one that was to be made."""
    own = made["labels"]
    there = found.get("labels") or {}
    same = all(there.get(name) == value for name, value in own.items())
    return same and (found.get("annotations") or {}).get(KEY) == made["annotations"][KEY]


def _digest(text: str, most: int = 8) -> str:
    return sha256(text.encode()).hexdigest()[:most]
