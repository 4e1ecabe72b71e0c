"""How far a pipeline is: the state of its stepper, and as JSON its checkpoint."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.engine.events import Error  # noqa: TC001 - msgspec reads the types of the fields

MOST_LOGGED = 1_000


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was decided so far."""

    task: str | None = None
    """The task to run; None when the pipeline has ended."""
    tries: int = 0
    """Tries of this pass that gave an outcome."""
    passes: dict[str, int] = {}
    runs: int = 0
    results: dict[str, Any] = {}
    errors: dict[str, dict[str, Any]] = {}
    """Errors that a rule accepted, by task."""
    previous: str | None = None
    writes: dict[str, Any] = {}
    ends_loop: bool = False
    failure: Error | None = None
    partial: Any = None
    kept: Any = None
    """What the task kept of its earlier tries: where it was."""
    log: list[dict[str, Any]] = []
    unlogged: int = 0

    def enter(self, task: str | None) -> None:
        """Begin a pass of a task, or end the pipeline."""
        self.task = task
        self.tries = 0
        self.kept = None
        if task is not None:
            self.passes[task] = self.passes.get(task, 0) + 1

    def write(self, key: str, value: object) -> None:
        """Keep a write in the place of those it replaces, so that a replay gives equal maps."""
        kept: dict[str, Any] = {}
        for earlier, old in self.writes.items():
            if earlier == key or earlier.startswith(f"{key}."):
                kept[key] = value
            else:
                kept[earlier] = old
        kept[key] = value
        self.writes = kept

    def written(self, scope: str) -> dict[str, Any]:
        """The writes of one scope by path."""
        prefix = f"{scope}."
        return {
            key.removeprefix(prefix): value
            for key, value in self.writes.items()
            if key.startswith(prefix)
        }

    def record(self, entry: dict[str, Any]) -> None:
        """Keep a line about one run of a task; beyond the limit runs are only counted."""
        if len(self.log) < MOST_LOGGED:
            self.log.append(entry)
        else:
            self.unlogged += 1

    def recorded(self) -> tuple[dict[str, Any], ...]:
        """A line for every run of a task, and how many more there were."""
        more = ({"more": self.unlogged},) if self.unlogged else ()
        return (*(dict(entry) for entry in self.log), *more)


# See `events`: worked out where one thread imports it.
msgspec.json.Decoder(Progress)
