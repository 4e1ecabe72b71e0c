"""What a reader asks for, as conditions with numbered parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.store.postgres.documents import stored, written
from noetl.store.postgres.ordering import OWN, Key
from noetl.store.postgres.values import id_of, moment
from noetl.store.upkeep import IMPORTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import Listing

BEGINNING: Final = 120
"""Characters of a message that its index has."""
_STATUSES: Final = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
_NAMED: Final = ("version", "pool", "created_by", "client_id")
_ANY: Final = "*"
_AWAY: Final = """abs(date_part('epoch', started_at - timestamptz '2024-01-01 00:00:00+00') * 1000
    - (execution_id >> 22))"""
"""Milliseconds between the start of a run and its id, as an index has them."""
_HOUR: Final = 3_600_000
_BESIDE: Final = "interval '1 hour 1 second'"
_IDLE: Final = """completed_at is null and status = 'RUNNING' and pending_commands = 0
    and kind <> {} and updated_at <= {}"""
_LAST: Final = "\U0010ffff"


Times = tuple[Key, list[str]]
"""Conditions on times, and the key that goes with them."""


class Asked:
    """A list as conditions."""

    def __init__(self, listing: Listing) -> None:
        self._values: list[object] = []
        self._listing = listing
        self._every: list[str] = []
        """What holds for every row, except for its tenant, its place, its status and its time."""
        self._filters = 0
        """How many filters have an order of their own."""
        self._prefixes: list[str] = []
        """Patterns of paths of which one must fit, when that is all that is asked for."""
        self._message: str | None = None
        self._tenant = None
        if listing.tenant_id is not None:
            self._tenant = f"tenant_id = {self._value(stored(listing.tenant_id))}"
        self._after = None if listing.after is None else self._value(id_of(listing.after))
        self._limit, self._offset = self._value(listing.limit), self._value(listing.offset)
        self._most = f"({self._limit}::bigint + {self._offset}::bigint)"
        self._facts()
        self._states()
        self._texts()

    @property
    def _has_free_index(self) -> bool:
        """A filter whose index does not begin with the tenant."""
        return (
            any(
                value is not None
                for value in (
                    self._listing.catalog_id,
                    self._listing.parent_execution_id,
                    self._listing.client_id,
                )
            )
            or self._listing.request_id == _ANY
        )

    def _facts(self) -> None:
        listing = self._listing
        if listing.execution_ids:
            numbers = [id_of(name) for name in listing.execution_ids]
            known = [number for number in numbers if number is not None]
            self._when("execution_id = any({}::bigint[])", known)
        if listing.idle_since is not None:
            self._when(_IDLE, IMPORTED, moment(listing.idle_since))
        if listing.catalog_id is not None:
            self._own("catalog_id = {}", id_of(listing.catalog_id))
        if listing.parent_execution_id == "none":
            self._own("parent_execution_id is null")
        elif listing.parent_execution_id is not None:
            self._own("parent_execution_id = {}", id_of(listing.parent_execution_id))
        if listing.request_id == _ANY:
            self._own("request_id is not null")
        elif listing.request_id is not None:
            self._own("request_id = {}", stored(listing.request_id))
        for name in _NAMED:
            value: Any = getattr(listing, name)
            if value is not None:
                self._own(f"{name} = {{}}", stored(value) if isinstance(value, str) else value)

    def _states(self) -> None:
        listing = self._listing
        if listing.has_error is not None:
            self._own(f"error is {'not ' if listing.has_error else ''}null")
        if listing.status:
            self._filters += 1
        if listing.denied:
            self._every.append(f"not {self._any(listing.denied)}")

    def _texts(self) -> None:
        listing = self._listing
        if listing.path is not None and not listing.path.endswith("*"):
            self._own("path = {}", stored(listing.path))
        self._is_loose = bool(listing.labels)
        if listing.labels:
            # The first part lets the planner use the index, which has no runs without labels.
            self._when("labels <> '{{}}' and labels @> {}::jsonb", written(listing.labels))
        self._others = list(self._every)
        """All but the patterns of paths."""
        is_prefix = listing.path is not None and listing.path.endswith("*")
        asked = [is_prefix, listing.allowed is not None, listing.q is not None]
        if is_prefix:
            self._every.append(self._of_path(listing.path or ""))
        if listing.allowed is not None:
            self._every.append(self._any(listing.allowed))
        if listing.q is not None:
            beginning = self._value(prefix_of(stored(listing.q)[:BEGINNING]))
            prefix = self._value(prefix_of(stored(listing.q)))
            self._message = f"error_beginning like {beginning}"
            if len(stored(listing.q)) > BEGINNING:
                self._message += f" and error_message like {prefix}"
            self._every.append(f"(path like {prefix} or ({self._message}))")
        if sum(asked) == 1 and not (self._filters or self._is_loose):
            if listing.q is not None:
                self._prefixes = [f"{listing.q}*"]
            else:
                paths = [listing.path] if listing.path is not None else listing.allowed
                self._prefixes = list(paths or ())
        self._is_loose = self._is_loose or any(asked)

    def _by_status(self) -> list[list[str]]:
        """Each status has an order of its own."""
        names: Sequence[str] = self._listing.status
        if not names and self._listing.has_error is False:
            names = _STATUSES
        return [[f"status = {self._value(name)}"] for name in names] or [[]]

    def _one_of_statuses(self) -> list[str]:
        names = self._listing.status
        return [f"status = any({self._value(list(names))}::text[])"] if names else []

    def _times(self, key: Key) -> list[Times]:
        """Runs that started when their id was made, by that; the few others, by themselves."""
        listing = self._listing
        started, ids = [], []
        if listing.since is not None:
            since = self._value(moment(listing.since))
            started.append(f"started_at >= {since}")
            ids.append(key.bound(">=", f"noetl.first_id({since}::timestamptz - {_BESIDE})"))
        if listing.until is not None:
            until = self._value(moment(listing.until))
            started.append(f"started_at < {until}")
            ids.append(key.bound("<", f"noetl.first_id({until}::timestamptz + {_BESIDE})"))
        if not started:
            return [(key, [])]
        return [
            (key, [*started, *ids, f"{_AWAY} <= {_HOUR}"]),
            (OWN, [*started, f"{_AWAY} > {_HOUR}"]),
        ]

    def _any(self, paths: Sequence[str]) -> str:
        return f"({' or '.join(map(self._of_path, paths)) or 'false'})"

    def _of_path(self, path: str) -> str:
        if path.endswith("*"):
            return f"path like {self._value(prefix_of(stored(path[:-1])))}"
        return f"path = {self._value(stored(path))}"

    def _range(self, path: str) -> tuple[str, str]:
        """Where paths of a pattern begin in the order of bytes, and where they have ended."""
        low = stored(path.removesuffix("*"))
        high = low + (_LAST if path.endswith("*") else "\x01")
        return self._value(low) + "::text", self._value(high) + "::text"

    def _own(self, condition: str, *values: object) -> None:
        self._filters += 1
        self._when(condition, *values)

    def _when(self, condition: str, *values: object) -> None:
        self._every.append(condition.format(*map(self._value, values)))

    def _value(self, value: object) -> str:
        self._values.append(value)
        return f"${len(self._values)}"


def prefix_of(text: str) -> str:
    """A pattern for what begins with the text."""
    plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{plain}%"
