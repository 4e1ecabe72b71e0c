"""Events as rows: the one outward form, for logs, answers, files and tables.

A row groups the facts of an event: what a reader looks for first stands by name, what belongs to
the machinery stands in `meta`, a result in `result`, and the rest in `context`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import NODEFAULT

from noetl.engine.events import KINDS, Event, Recorded, SubscriptionEvent
from noetl.engine.upcast import upcast
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo

TOP: Final = (
    "step", "attempt", "worker_id", "error", "duration_ms", "trace", "idempotency_key",
    "parent_execution_id", "catalog_id",
)  # fmt: skip
META: Final = (
    "command_key", "visit", "index", "frame", "tasks", "engine_version", "dedup_key", "rerun_of",
    "forked_from", "warnings", "iter", "of_step", "ends_loop", "is_claim", "child_key",
    "parent_key", "depth", "concurrency_key", "created_by", "request", "subscription",
    "tenant_id", "node_type", "replay_of",
)  # fmt: skip
_OF_ROW: Final = (
    "execution_id", "seq", "event_id", "prev_event_id", "created_at", "parent_event_id",
    "event_time",
)  # fmt: skip
RESULT: Final = ("result", "reference")
_IS_BARE: Final = "node_type"
"""In `meta`: the row is of a container, whose result is a map of its own."""
TYPES: Final = frozenset(KINDS)


class InvalidRow(NoetlError):
    """A row that is no event of the vocabulary."""

    code = "invalid_row"
    status = 422


def to_row(recorded: Recorded) -> dict[str, Any]:
    """The row of an event; the store, the readers and the bus ask for it one after the other."""
    found = _recent.get(id(recorded))
    if found is None:
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        # The event is kept with it, so that no other one has its id.
        found = _recent[id(recorded)] = recorded, _made(recorded)
    return found[1].copy()


def _made(recorded: Recorded) -> dict[str, Any]:
    event = recorded.event
    form = _form_of(type(event))
    row: dict[str, Any] = {
        "execution_id": recorded.execution_id,
        "seq": recorded.seq,
        "event_id": recorded.event_id,
        "prev_event_id": recorded.prev_event_id,
        "event_type": form.name,
        "node_type": event.node_type,
        "status": status_of(event),
        "created_at": recorded.created_at,
    }
    if recorded.parent_event_id is not None:
        row["parent_event_id"] = recorded.parent_event_id
    if recorded.event_time is not None:
        row["event_time"] = recorded.event_time
    row["step"] = row["node_name"] = row["node_id"] = getattr(event, "step", "playbook")
    if isinstance(event, SubscriptionEvent):
        return row | _free(event)
    result = form.result.of(event)
    meta = form.meta.of(event)
    if result:
        row["result"] = _result(result, row["status"], is_bare=_IS_BARE in meta)
    row |= form.top.of(event)
    if meta:
        row["meta"] = meta
        row["node_id"] = meta.get("command_key", row["step"])
    context = form.context.of(event)
    if context:
        row["context"] = context
    return row


def _free(event: SubscriptionEvent) -> dict[str, Any]:
    """Facts that no class names, as they are."""
    given = {"context": event.facts, "meta": event.about}
    return {name: dict(value) for name, value in given.items() if value}


class _Group:
    """The fields of an event that go to one place of its row, without those that say nothing."""

    __slots__ = ("_fields",)

    def __init__(self, fields: list[FieldInfo]) -> None:
        self._fields = [
            (field.name, field.encode_name, field.default, field.default_factory is not NODEFAULT)
            for field in fields
        ]

    def of(self, event: Event) -> dict[str, Any]:
        found = {}
        for name, told, default, is_made in self._fields:
            value = getattr(event, name)
            if value is default or (is_made and not value):
                continue
            found[told] = value if type(value) in _PLAIN else msgspec.to_builtins(value)
        return found


class _Form:
    """Where the fields of a kind of event stand in its row."""

    __slots__ = ("context", "meta", "name", "result", "top")

    def __init__(self, kind: type[Event]) -> None:
        self.name = str(kind.__struct_config__.tag)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for name in ("step", "execution_id", "outcome"):
            fields.pop(name, None)

        def taken(names: tuple[str, ...]) -> _Group:
            return _Group([fields.pop(name) for name in names if name in fields])

        self.top, self.meta, self.result = taken(TOP), taken(META), taken(RESULT)
        self.context = _Group(list(fields.values()))


_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_form_of: Final = functools.cache(_Form)
_MOST_RECENT: Final = 512
_recent: Final[dict[int, tuple[Recorded, dict[str, Any]]]] = {}


def status_of(event: Event) -> str:
    """The status word of an event: of its kind, or of its outcome."""
    outcome: str = getattr(event, "outcome", "")
    return outcome or event.status


def _result(found: dict[str, Any], status: str, *, is_bare: bool) -> dict[str, Any]:
    """`{status, context?, reference?}`; the context of a container is its end itself."""
    made: dict[str, Any] = {"status": status}
    if "result" in found:
        made["context"] = found["result"] if is_bare else {"data": found["result"]}
    if "reference" in found:
        made["reference"] = found["reference"]
    return made


def from_row(row: dict[str, Any]) -> Recorded:
    """The event of a row, of this release or an older one."""
    try:
        today = upcast(row)
        name = today["event_type"]
        cls = KINDS.get(name)
        if cls is None:
            raise InvalidRow(f"there is no event `{name}`")
        about = {key: today[key] for key in _OF_ROW if key in today}
        if issubclass(cls, SubscriptionEvent):
            told: Any = cls(facts=today.get("context") or {}, about=today.get("meta") or {})
            return Recorded(event=told, **about)
        fields = {**(today.get("context") or {}), **(today.get("meta") or {})}
        fields |= {key: today[key] for key in TOP if today.get(key) is not None}
        if "step" in cls.__struct_fields__:
            fields["step"] = today["step"]
        else:
            fields.pop("step", None)
        if "execution_id" in cls.__struct_fields__:
            fields["execution_id"] = today["execution_id"]
        if "outcome" in cls.__struct_fields__:
            fields["outcome"] = today["status"]
        result = today.get("result") or {}
        if _IS_BARE in fields and "context" in result:
            fields["result"] = result["context"]
        elif "data" in (result.get("context") or {}):
            fields["result"] = result["context"]["data"]
        if result.get("reference") is not None:
            fields["reference"] = result["reference"]
        event: Any = msgspec.convert({"event_type": name, **fields}, cls)
        return Recorded(event=event, **about)
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as fault:
        raise InvalidRow(f"the row is no event: {fault}") from None
