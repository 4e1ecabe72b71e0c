"""Playbooks as tools: what each is called, what it takes and what it gives."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.catalog import CatalogQuery
from noetl.dsl.form import fields_of
from noetl.dsl.parse import parse
from noetl.dsl.playbook.document import Playbook
from noetl.dsl.playbook.inputs import input_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from noetl.api.catalog import CatalogItem
    from noetl.api.client import Client
    from noetl.clock import Clock
    from noetl.dsl.form import FormField
    from noetl.dsl.parse import Parsed
    from noetl.gateway.person import Person
    from noetl.gateway.upstream import Upstream

MOST_NAME: Final = 64
MOST_DESCRIPTION: Final = 4096
PAGE: Final = 100
KEPT_S: Final = 5.0
"""How long what somebody may run is remembered; a start asks the server anew."""
MOST_KEPT: Final = 500
MOST_SHAPES: Final = 5_000
FEW: Final = 8
"""How many documents are read one by one."""
_LISTED: Final = 200
_HEX: Final = 8
_HINTS: Final = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a version of a playbook says about itself."""

    title: str
    description: str
    takes: dict[str, Any]
    """The schema of its inputs."""
    gives: dict[str, Any]
    """The schema of an answer that has its result."""
    annotations: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A playbook that somebody may run."""

    name: str
    path: str
    shape: Shape

    def shown(self, *, with_tasks: bool) -> dict[str, Any]:
        """As a list shows it."""
        shape = self.shape
        made: dict[str, Any] = {
            "name": self.name,
            "title": shape.title,
            "description": shape.description,
            "inputSchema": shape.takes,
            "outputSchema": shape.gives,
        }
        if shape.annotations:
            made["annotations"] = shape.annotations
        if with_tasks:
            made["execution"] = {"taskSupport": "optional"}
        return made


class Toolbox:
    """The tools of everybody, read from the catalog as they may."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._kept: OrderedDict[tuple[str, ...], tuple[float, dict[str, Tool]]] = OrderedDict()
        self._shapes: OrderedDict[str, Shape | None] = OrderedDict()

    async def of(self, person: Person, taken: Iterable[str]) -> dict[str, Tool]:
        """What somebody may run, by name; some names are taken."""
        key = (person.user_id, person.session_id, person.tenant, *person.roles)
        now = self._clock.monotonic()
        known = self._kept.get(key)
        if known is not None and now < known[0] + KEPT_S:
            return known[1]
        found = {path: shape async for path, shape in self._runnable(person)}
        made = {
            name: Tool(name=name, path=path, shape=found[path])
            for path, name in names_of(found, taken).items()
        }
        self._kept[key] = (now, made)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return made

    async def _runnable(self, person: Person) -> AsyncIterator[tuple[str, Shape]]:
        client = self._upstream.acting_for(person)
        query = CatalogQuery(resource_type="playbook", may="execute", limit=_LISTED)
        while True:
            page = await client.catalog(query)
            await self._learn(client, query, page.entries)
            for entry in page.entries:
                shape = self._shapes.get(entry.digest)
                if shape is not None:
                    yield entry.path, shape
            if page.next_cursor is None:
                return
            query = msgspec.structs.replace(query, cursor=page.next_cursor)

    async def _learn(
        self, client: Client, query: CatalogQuery, entries: Sequence[CatalogItem]
    ) -> None:
        """Read what documents say about themselves; the same text is read once.

        A few of them are asked for one by one, more of them as the page that they are on.
        """
        unknown = []
        for entry in entries:
            if entry.digest in self._shapes:
                self._shapes.move_to_end(entry.digest)
            else:
                unknown.append(entry)
        asked = [msgspec.structs.replace(query, content=True)]
        if len(unknown) <= FEW:  # the document of a path comes before those below it
            asked = [
                msgspec.structs.replace(asked[0], path_prefix=one.path, limit=1, cursor=None)
                for one in unknown
            ]
        for page in await asyncio.gather(*map(client.catalog, asked)):
            for one in page.entries:
                if one.digest not in self._shapes:
                    self._shapes[one.digest] = await asyncio.to_thread(shape_of, one.content or "")
        while len(self._shapes) > MOST_SHAPES:
            self._shapes.popitem(last=False)


def names_of(paths: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """The name of each path: with dots for slashes; cut and marked when too long or not its own."""
    plain = {path: path.replace("/", ".") for path in paths}
    used = Counter([*plain.values(), *taken])
    return {
        path: name if len(name) <= MOST_NAME and used[name] == 1 else _marked(path, name)
        for path, name in plain.items()
    }


def _marked(path: str, name: str) -> str:
    mark = sha256(path.encode()).hexdigest()[:_HEX]
    return f"{name[: MOST_NAME - _HEX - 1]}-{mark}"


def shape_of(content: str) -> Shape | None:
    """What a playbook says about itself; none when it is not meant to be a tool."""
    parsed = parse(content)
    playbook = parsed.model
    if not isinstance(playbook, Playbook) or not playbook.metadata.exposes_as_mcp:
        return None
    written = parsed.document.root
    if not isinstance(written, dict) or "inputs" not in written:
        return None  # it says nothing about what it takes
    about = playbook.metadata
    hints = about.extra.get("annotations")
    told = about.description or f"Runs the playbook {playbook.path}."
    return Shape(
        title=about.name,
        description=told[:MOST_DESCRIPTION],
        takes=_takes(playbook, parsed),
        gives=gives(None if playbook.output is None else playbook.output.schema),
        annotations=_plain({k: v for k, v in hints.items() if k in _HINTS})
        if isinstance(hints, dict)
        else {},
    )


def _takes(playbook: Playbook, parsed: Parsed) -> dict[str, Any]:
    spec = playbook.executor.spec if playbook.executor else None
    is_strict = bool(spec and spec.strict_inputs)
    schema: dict[str, Any] = _plain(input_schema(playbook.inputs, strict=is_strict))
    if not is_strict:
        for one in fields_of(playbook, parsed):
            if one.name not in playbook.inputs:
                schema["properties"][one.name] = _plain(_of_workload(one))
    return schema


def _of_workload(one: FormField) -> dict[str, Any]:
    """A value of `workload` that a caller may change."""
    made: dict[str, Any] = {}
    if one.options:
        made["enum"] = list(one.options)
    elif one.kind != "null":
        made["type"] = one.kind
    if one.secret:
        made["writeOnly"] = True
    else:
        made["default"] = one.default
    texts = {"title": one.title, "description": one.description}
    return made | {name: text for name, text in texts.items() if text}


def gives(result: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of an answer; a run that goes on has no result yet."""
    inner = _plain({k: v for k, v in (result or {}).items() if k != "$schema"})
    if ("$defs" in inner or "definitions" in inner) and "$id" not in inner:
        inner["$id"] = "noetl:result"  # references inside it begin there
    return {
        "type": "object",
        "properties": {
            "execution_id": {"type": "string"},
            "request_id": {"type": "string"},
            "status": {"type": "string"},
            "result": {"anyOf": [inner, {"type": "null"}]} if inner else {},
            "result_ref": {"type": "object"},
            "error": {"type": "object"},
            "problems": {"type": "array"},
        },
        "required": ["status"],
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """In the standard's own types; parsed documents have maps with places."""
    return msgspec.json.decode(msgspec.json.encode(value))
