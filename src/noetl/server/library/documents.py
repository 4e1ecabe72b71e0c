"""Readers of the catalog: one document, pages of them, versions, and how they look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.catalog import (
    Breaking,
    CatalogItem,
    CatalogPage,
    ChangedStep,
    CheckedDocument,
    Difference,
    DocumentGraph,
    Entry,
    Form,
    StepChanges,
    ValueChange,
    VersionItem,
    VersionPage,
)
from noetl.clock import rfc3339
from noetl.dsl.difference import difference
from noetl.dsl.form import ui_schema
from noetl.dsl.kinds import word_of
from noetl.dsl.lint import lint
from noetl.edge.errors import Forbidden, Unacceptable, UnknownPath
from noetl.ids import parse as parse_id
from noetl.server.access.entry import must
from noetl.server.access.grants import WORDS
from noetl.server.ingest.wanted import version_of
from noetl.server.library.plans import plan_of
from noetl.server.library.suites import namers
from noetl.server.library.texts import aside, content_of, count, must_be_path, parsed_of
from noetl.store.base import CatalogEntry, CatalogListing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.catalog import CatalogQuery, Resource, Validate
    from noetl.clock import Clock
    from noetl.dsl.difference import ValueChange as Value
    from noetl.dsl.plugins import Plugins
    from noetl.edge.cursor import Cursors
    from noetl.server.access.entry import Caller
    from noetl.server.library.suites import Suites
    from noetl.server.metrics import ServerMetrics
    from noetl.store.base import Store

MOST_LISTED: Final = 200
READ: Final = "catalog:read"


class Documents:
    """Finds and shows documents of the caller's tenant."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        store: Store,
        suites: Suites,
        cursors: Cursors,
        metrics: ServerMetrics,
        *,
        clock: Clock,
        plugins: Callable[[], Awaitable[Plugins]],
    ) -> None:
        self._metrics = metrics
        self._plugins = plugins
        self._catalog = store.catalog
        self._versions = store.versions
        self._suites = suites
        self._cursors = cursors
        self._clock = clock

    async def find(self, wanted: Resource, caller: Caller) -> Entry:
        """One version of a document."""
        if wanted.catalog_id is not None:
            found = await self._by_id(parse_id(wanted.catalog_id), caller)
        elif wanted.path is not None:
            found = await self.resolved(caller, wanted.path, wanted.version)
        else:
            raise Unacceptable("name `catalog_id` or `path`")
        fields = {name: getattr(found, name) for name in Entry.__struct_fields__ if name in _OWN}
        return Entry(**fields)

    async def _by_id(self, catalog_id: str, caller: Caller) -> CatalogEntry:
        found = await self._catalog.get(catalog_id)
        is_there = found is not None and (
            not caller.is_bound
            or (found.tenant_id == caller.tenant_id and found.removed_at is None)
        )
        if found is None or not is_there:
            raise UnknownPath(f"the catalog has no {catalog_id}")
        must(caller, READ, found.path)
        return found

    async def resolved(
        self, caller: Caller, path: str, version: str | int | None = None
    ) -> CatalogEntry:
        """A version of a path that the caller may read."""
        may_look_around(caller)
        must(caller, READ, must_be_path(path))
        found = await self._catalog.resolve(caller.tenant_id, path, version_of(version))
        if found is None:
            shown = "" if version is None else f" version {version}"
            raise UnknownPath(f"the catalog has no {path}{shown}")
        return found

    async def listed(self, query: CatalogQuery, caller: Caller) -> CatalogPage:
        """A page of documents, by path."""
        may_look_around(caller)
        if not 1 <= query.limit <= MOST_LISTED:
            raise Unacceptable(f"`limit` is not in 1..{MOST_LISTED}")
        filters: dict[str, Any] = {
            "kind": None if query.resource_type is None else word_of(query.resource_type),
            "path_prefix": query.path_prefix,
            "q": query.q,
            "all_versions": query.versions == "all",
            "include_archived": query.include_archived,
        }
        bound = {"of": "catalog", "tenant": caller.tenant_id, **filters}
        needed = (READ,) if query.may is None else (READ, *WORDS[query.may])
        after = None
        if query.cursor is not None:
            path, version = self._cursors.decode(query.cursor, bound)
            after = (str(path), int(version))
        rows = await self._catalog.listed(
            caller.tenant_id,
            CatalogListing(
                limit=query.limit + 1, after=after, with_content=query.content, **filters
            ),
        )
        page = rows[: query.limit]
        position = (page[-1].path, page[-1].version) if len(rows) > query.limit else None
        return CatalogPage(
            entries=tuple(
                item_of(row, with_content=query.content)
                for row in page
                if all(caller.may(one, row.path) for one in needed)
            ),
            next_cursor=None if position is None else self._cursors.encode(bound, position),
        )

    async def versions(
        self, caller: Caller, path: str, limit: int, cursor: str | None
    ) -> VersionPage:
        """The versions of a path, newest first."""
        may_look_around(caller)
        must(caller, READ, must_be_path(path))
        bound = {"of": "versions", "tenant": caller.tenant_id, "path": path}
        before = None if cursor is None else int(self._cursors.decode(cursor, bound))
        rows = await self._versions.page(caller.tenant_id, path, limit + 1, before)
        if not rows and cursor is None:
            raise UnknownPath(f"the catalog has no {path}")
        page = rows[:limit]
        last = page[-1].version if len(rows) > limit else None
        return VersionPage(
            items=tuple(
                VersionItem(archived=row.archived_at is not None, **msgspec.structs.asdict(row))
                for row in page
            ),
            next_cursor=None if last is None else self._cursors.encode(bound, last),
        )

    async def compared(
        self, caller: Caller, path: str, before: str | int | None, after: str | int | None
    ) -> Difference:
        """Two versions side by side: without names, what the path means and the one before it."""
        new = await self.resolved(caller, path, after)
        old = await self.resolved(caller, path, before or await self._older(new))
        parsed = [await parsed_of(entry.content) for entry in (old, new)]
        named = namers(await self._suites.of(caller.tenant_id, path))
        names = (f"{path}@{old.version}", f"{path}@{new.version}")
        found = await aside(
            len(old.content) + len(new.content),
            lambda: difference(parsed[0], parsed[1], names, named),
        )
        return Difference(
            path=path,
            from_=old.version,
            to=new.version,
            unified=found.unified,
            steps=StepChanges(
                added=found.added,
                removed=found.removed,
                changed=tuple(ChangedStep(step=one.step, keys=one.keys) for one in found.changed),
            ),
            workload=tuple(map(_value, found.workload)),
            breaking=tuple(
                Breaking(code=one.code, name=one.name, message=one.message)
                for one in found.breaking
            ),
        )

    async def _older(self, entry: CatalogEntry) -> int:
        """The version before one, archived ones left out; the first one is before itself."""
        rows = await self._versions.page(entry.tenant_id, entry.path, MOST_LISTED, entry.version)
        kept = (row.version for row in rows if row.archived_at is None)
        return next(kept, entry.version)

    async def form(self, caller: Caller, path: str, version: str | int | None) -> Form:
        """The run form of a playbook."""
        entry = await self.resolved(caller, path, version)
        parsed = await parsed_of(entry.content)
        made = ui_schema(parsed, version=entry.version, generated_at=rfc3339(self._clock.now()))
        return msgspec.convert(made | {"path": entry.path, "kind": entry.kind}, Form)

    async def graph(self, caller: Caller, path: str, version: str | int | None) -> DocumentGraph:
        """The steps and arcs of a playbook."""
        entry = await self.resolved(caller, path, version)
        plan = plan_of(await parsed_of(entry.content))
        return DocumentGraph(path=path, version=entry.version, nodes=plan.nodes, edges=plan.edges)

    async def validated(self, body: Validate) -> CheckedDocument:
        """Everything that is found in a document, which is not kept."""
        content = content_of(body.content, body.encoding)
        parsed = await parsed_of(content, await self._plugins())
        found = await aside(len(content), lambda: lint(parsed))
        count(self._metrics, found)
        return CheckedDocument(
            valid=parsed.model is not None,
            diagnostics=tuple(dict(item.as_json()) for item in found),
            graph=plan_of(parsed),
        )


_OWN: Final = frozenset(CatalogEntry.__struct_fields__)


def may_look_around(caller: Caller) -> None:
    """Refuse those who may read only what they were told of."""
    if caller.mark(READ) == "o":
        raise Forbidden(
            f"the account {caller.account!r} reads documents by `catalog_id` only",
            hint="the id stands in the command",
        )


def item_of(row: CatalogEntry, *, with_content: bool = False) -> CatalogItem:
    """A document in a list."""
    return CatalogItem(
        catalog_id=row.catalog_id,
        path=row.path,
        kind=row.kind,
        version=row.version,
        digest=row.digest,
        created_at=row.created_at,
        content=row.content if with_content else None,
        meta=row.meta,
        archived_at=row.archived_at,
        created_by=row.created_by,
        message=row.message,
    )


def _value(found: Value) -> ValueChange:
    before = {} if found.change == "added" else {"from_": found.before}
    after = {} if found.change == "removed" else {"to": found.after}
    return ValueChange(name=found.name, change=found.change, **before, **after)
