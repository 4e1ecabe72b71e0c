"""The state of a run as plain data and back: for snapshots, which are a cache, and for forks."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.views import Reference, StepResult
from noetl.engine import events as ev
from noetl.engine.state import Child, Command, FrameState, LoopState, State, StepState, Timer
from noetl.engine.upcast import ENGINE_VERSION

if TYPE_CHECKING:
    from noetl.engine.program import Program

_REPORTS: Final = {"call.done": ev.CallDone, "call.error": ev.CallError}


def dump(state: State) -> bytes:
    """The snapshot, tagged with the version of the engine that made it."""
    return msgspec.msgpack.encode({"engine_version": ENGINE_VERSION, "state": as_data(state)})


def load(program: Program, data: bytes) -> State | None:
    """The state of a snapshot; none when another version of the engine made it."""
    found = msgspec.msgpack.decode(data)
    if found.get("engine_version") != ENGINE_VERSION:
        return None
    return from_data(program, found["state"])


def as_data(state: State) -> dict[str, Any]:
    """The state as maps, lists and scalars."""
    made: dict[str, Any] = {}
    for item in fields(State):
        value = getattr(state, item.name)
        if item.name == "program":
            continue
        if item.name == "agenda":
            made["agenda"] = [list(entry) for entry in value]
        elif item.name == "tokens":
            arcs = state.program.arcs
            named = ((arcs[number], token) for number, token in value.items())
            made["tokens"] = [[arc.source, arc.target, arc.place, token] for arc, token in named]
        else:
            made[item.name] = _plain(value)
    return made


def _plain(value: Any) -> Any:  # noqa: ANN401 - any part of a state
    """Data; a reference inside values of the author's own is marked."""
    if isinstance(value, Reference):
        return {"$reference": msgspec.to_builtins(value)}
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, (State, StepState, LoopState, FrameState, Command, Child, Timer)):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, StepResult):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        made = {str(key): _plain(item) for key, item in value.items()}
        return {"$plain": made} if made.keys() in _MARKS else made
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


# A map of the author's own that looks like a mark is marked itself.
_MARKS: Final = ({"$reference"}, {"$plain"})


def from_data(program: Program, data: dict[str, Any]) -> State:
    """The state of such maps."""
    given = {key: _read(value) for key, value in data.items()}
    given["agenda"] = {tuple(entry): None for entry in data["agenda"]}
    numbers = {(arc.source, arc.target, arc.place): arc.number for arc in program.arcs}
    given["tokens"] = {
        numbers[source, target, place]: token
        for source, target, place, token in data["tokens"]
        if (source, target, place) in numbers
    }
    cycles = given["open_in_cycle"].items()
    given["open_in_cycle"] = {head: count for head, count in cycles if head in program.inside}
    given["steps"] = {name: _step(item) for name, item in given["steps"].items()}
    given["commands"] = {key: _command(item) for key, item in given["commands"].items()}
    given["children"] = {key: Child(**item) for key, item in given["children"].items()}
    given["timers"] = {key: Timer(**item) for key, item in given["timers"].items()}
    given["failure"] = _error(given["failure"])
    return State(program=program, **given)


def _read(value: Any) -> Any:  # noqa: ANN401 - any part of a state
    if isinstance(value, dict):
        if value.keys() == {"$reference"}:
            return msgspec.convert(value["$reference"], Reference)
        if value.keys() == {"$plain"}:
            return {key: _read(item) for key, item in value["$plain"].items()}
        return {key: _read(item) for key, item in value.items()}
    return [_read(item) for item in value] if isinstance(value, list) else value


def _error(value: Any) -> ev.Error | None:  # noqa: ANN401 - a map or null
    return None if value is None else msgspec.convert(value, ev.Error)


def _step(item: dict[str, Any]) -> StepState:
    result = item["result"]
    if result is not None:
        result["errors"] = tuple(result["errors"])
        item["result"] = StepResult(**result)
    item["came_from"] = tuple(item["came_from"])
    item["error"] = _error(item["error"])
    loop = item["loop"]
    if loop is not None:
        loop["first_error"] = _error(loop["first_error"])
        loop["items_ref"] = tuple(loop["items_ref"])
        frames = loop["frames"].items()
        loop["frames"] = {int(number): _frame(frame) for number, frame in frames}
        item["loop"] = LoopState(**loop)
    return StepState(**item)


def _frame(item: dict[str, Any]) -> FrameState:
    item["error"] = _error(item["error"])
    return FrameState(**item)


def _command(item: dict[str, Any]) -> Command:
    item["issued"] = msgspec.convert(item["issued"], ev.CommandIssued)
    report = item["report"]
    if report is not None:
        item["report"] = msgspec.convert(report, _REPORTS[report["event_type"]])
    item["error"] = _error(item.get("error"))
    return Command(**item)
