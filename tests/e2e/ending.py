"""What two runs of one playbook must have in common, whatever they ran on."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Who works on a command, and when it is told, is a matter of the moment.
PASSING = frozenset({"command.claimed", "command.started", "step.progress"})
WORK = ("command.", "call.", "frame.", "timer.")
_MOMENTARY = re.compile(
    r"\d{16,20}|\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|\+00:00)?"
    r"|\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT|(?<=127\.0\.0\.1:)\d+"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, and the log of it and its children."""

    status: str
    result: Any
    error: Mapping[str, Any] | None
    logs: Mapping[str, Sequence[Row]]
    """By the keys that parents gave their children; the run's own one is empty."""

    def as_json(self) -> dict[str, Any]:
        """How it ended, as `-o json` shows it."""
        return {"status": self.status, "result": self.result, "error": self.error}

    def differences(self, other: Ending) -> list[str]:
        """What the other run did not do in the same way."""
        return [
            *_unequal("status", self.status, other.status),
            *_unequal("result", plain(self.result), plain(other.result)),
            *_unequal("error", _told(self.error), _told(other.error)),
            *_unequal("children", sorted(self.logs), sorted(other.logs)),
            *(
                f"{key or 'log'}: {difference}"
                for key in self.logs.keys() & other.logs.keys()
                for difference in _apart(self.logs[key], other.logs[key])
            ),
        ]


def plain(value: Any) -> Any:
    """A value without the ids and times of its run."""
    if isinstance(value, str):
        return _MOMENTARY.sub("*", value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "elapsed_ms"}
    return value


def skeleton(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """What happened, without values, times and persons."""
    return [
        (
            row["event_type"], row["step"], row["status"], row.get("attempt"),
            *(row.get("meta", {}).get(key) for key in ("visit", "index", "frame")),
        )
        for row in _kept(rows)
        if row["event_type"] not in PASSING
    ]  # fmt: skip


def _kept(rows: Iterable[Row]) -> Iterator[Row]:
    """All but commands that a busy worker has given back before it began with them."""
    before: dict[str, str] = {}
    for row in rows:
        name = row.get("node_id", "")
        if row["event_type"] == "command.resumed" and before.get(name) == "command.claimed":
            continue
        before[name] = row["event_type"]
        yield row


def is_determined(rows: Iterable[Row]) -> bool:
    """Whether nothing ever happened beside something else."""
    steps = commands = 0
    for row in rows:
        steps += (row["event_type"] == "step.enter") - (row["event_type"] == "step.exit")
        commands += row["event_type"] == "command.issued"
        commands -= row["event_type"] in {
            "command.completed", "command.failed", "command.cancelled", "command.lost",
        }  # fmt: skip
        if steps > 1 or commands > 1:
            return False
    return True


def _apart(ours: Sequence[Row], theirs: Sequence[Row]) -> list[str]:
    one, two = skeleton(ours), skeleton(theirs)
    if is_determined(ours):
        pairs = enumerate(zip_longest(one, two))
        return [f"{at}: {our!r} is not {their!r}" for at, (our, their) in pairs if our != their][:1]
    # Which frame gets which rows is a race of its claims, and so is how far others had come when
    # one failed.
    is_cut = one[-1][0] != "playbook.completed"
    first, second = (
        Counter(item[:-1] for item in log if not (is_cut and item[0].startswith(WORK)))
        for log in (one, two)
    )
    return [
        *(f"only here: {item}" for item in (first - second).elements()),
        *(f"only there: {item}" for item in (second - first).elements()),
        *_unequal("ends", one[-1], two[-1]),
    ]


def _told(error: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if error is None else {key: error.get(key) for key in ("kind", "code", "step")}


def _unequal(what: str, ours: Any, theirs: Any) -> list[str]:
    return [] if ours == theirs else [f"{what}: {ours!r} is not {theirs!r}"]
