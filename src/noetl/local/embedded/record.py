"""`run/stack.json`: what runs, kept so that any other command can find, judge and stop it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from noetl.local.embedded.identity import Identity

if TYPE_CHECKING:
    from pathlib import Path

STARTING: Final = "starting"
READY: Final = "ready"
STOPPING: Final = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of the stack."""

    name: str
    stage: int
    """Parts of a higher stage need those of a lower one: they start later and stop earlier."""
    pid: int = 0
    started: str = ""
    started_at: str = ""
    port: int = 0
    url: str = ""
    health: str = ""
    """Address that answers 200 when the part is well; none: it is well while it runs."""
    data_dir: str = ""
    log: str = ""
    restarts: int = 0
    stop_signal: str = "SIGTERM"
    kill_signal: str = "SIGKILL"

    @property
    def identity(self) -> Identity:
        """The process that was started last."""
        return Identity(self.pid, self.started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All processes of a stack and where they are reached."""

    version: str
    home: str
    state: str
    url: str
    pid: int
    started: str
    started_at: str
    database_url_file: str
    nats_url: str
    token_file: str
    gateway_url: str = ""
    """Where this machine reaches the gateway; empty without one."""
    public_url: str = ""
    """How browsers reach it, where that is another address."""
    has_pages: bool = True
    """Whether the gateway serves the web pages."""
    parts: tuple[Part, ...] = field(default=())

    @property
    def supervisor(self) -> Identity:
        """The process that watches the others."""
        return Identity(self.pid, self.started)

    def with_part(self, part: Part) -> Stack:
        """The same with a part as it is now."""
        others = [other for other in self.parts if other.name != part.name]
        parts = sorted((*others, part), key=lambda one: (one.stage, one.name))
        return replace(self, parts=tuple(parts))

    def without(self, name: str) -> Stack:
        """The same without a part."""
        return replace(self, parts=tuple(part for part in self.parts if part.name != name))

    def as_json(self) -> dict[str, Any]:
        """As it is written, and as `-o json` shows it."""
        return asdict(self)


def write(path: Path, stack: Stack) -> None:
    """Keep it, readable by its owner alone; a reader sees the old text or the new one."""
    beside = path.with_suffix(".new")
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        json.dump(stack.as_json(), file, indent=1)
    beside.replace(path)


def read(path: Path) -> Stack | None:
    """What was kept; none when there is nothing, or nothing that makes sense."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        parts = tuple(Part(**part) for part in values.pop("parts"))
        return Stack(**values, parts=parts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
