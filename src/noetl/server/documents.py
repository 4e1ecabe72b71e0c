"""The catalog: documents are checked, then kept under their path for ever."""

from __future__ import annotations

import binascii
from base64 import b64decode
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from noetl.api.catalog import CatalogItem, CatalogPage, Entry, Registered
from noetl.clock import rfc3339
from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.ids import parse as parse_id
from noetl.server.access import LOCAL
from noetl.server.errors import Conflict, Forbidden, TooLarge, Unacceptable, UnknownPath
from noetl.server.wanted import version_of
from noetl.store.base import CatalogEntry, CatalogListing

if TYPE_CHECKING:
    from noetl.api.catalog import CatalogQuery, Register, Resource
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.access import Caller
    from noetl.server.cursor import Cursors
    from noetl.server.programs import Programs
    from noetl.server.schedules import Timetables
    from noetl.store.base import Catalog


MOST_BYTES: Final = 1024 * 1024
MOST_LISTED: Final = 200


class Documents:
    """Keeps and finds documents."""

    def __init__(
        self,
        catalog: Catalog,
        programs: Programs,
        timetables: Timetables,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._timetables = timetables
        self._catalog = catalog
        self._programs = programs
        self._clock = clock
        self._ids = ids

    async def register(self, body: Register, caller: Caller = LOCAL) -> Registered:
        """Keep a document; one that equals the newest version changes nothing."""
        content = _content(body)
        parsed = parse(content)
        model: Any = parsed.model
        if model is None:
            raise Unacceptable(
                "the document is not valid",
                code="invalid_playbook",
                errors=tuple(dict(item.as_json()) for item in parsed.errors),
            )
        path = model.metadata.path or model.metadata.name
        _must_be_writable(path, caller)
        await self._must_be_newest(path, body.if_version)
        warnings = tuple(dict(item.as_json()) for item in parsed.warnings)
        text = content.replace("\r\n", "\n")
        made = CatalogEntry(
            catalog_id=self._ids.new(),
            path=path,
            version=0,
            kind=parsed.kind.lower(),
            content=content,
            digest=sha256(text.encode()).hexdigest(),
            created_at=rfc3339(self._clock.now()),
            message=body.message,
            created_by=caller.account,
            tenant_id=caller.tenant_id,
            meta={"warnings": warnings} if warnings else {},
        )
        kept = await self._catalog.add(made)
        if isinstance(model, Playbook):  # also when it was known: its schedules may not be
            await self._timetables.replace(model)
        return Registered(
            path=kept.path,
            version=kept.version,
            catalog_id=kept.catalog_id,
            kind=kept.kind,
            digest=kept.digest,
            changed=(changed := kept.catalog_id == made.catalog_id),
            message=f"{kept.path} version {kept.version} is "
            + ("registered" if changed else "unchanged"),
            warnings=warnings,
        )

    async def _must_be_newest(self, path: str, if_version: int | None) -> None:
        if if_version is None:
            return
        versions = await self._catalog.versions(path)
        newest = versions[0].version if versions else 0
        if newest != if_version:
            raise Conflict(
                f"the newest version of {path} is {newest}, not {if_version}",
                code="version_conflict",
            )

    async def listed(self, query: CatalogQuery, cursors: Cursors) -> CatalogPage:
        """A page of documents, by path."""
        if not 1 <= query.limit <= MOST_LISTED:
            raise Unacceptable(f"`limit` is not in 1..{MOST_LISTED}")
        kind = None if query.resource_type is None else query.resource_type.lower()
        filters: dict[str, Any] = {
            "kind": kind,
            "path_prefix": query.path_prefix,
            "q": query.q,
            "all_versions": query.versions == "all",
            "include_archived": query.include_archived,
        }
        after = None
        if query.cursor is not None:
            path, version = cursors.decode(query.cursor, {"of": "catalog", **filters})
            after = (str(path), int(version))
        rows = await self._catalog.listed(
            CatalogListing(limit=query.limit + 1, after=after, **filters)
        )
        page = rows[: query.limit]
        position = (page[-1].path, page[-1].version) if len(rows) > query.limit else None
        return CatalogPage(
            entries=tuple(_item(row, with_content=query.content) for row in page),
            next_cursor=None
            if position is None
            else cursors.encode({"of": "catalog", **filters}, position),
        )

    async def find(self, wanted: Resource) -> Entry:
        """One version of a document."""
        if wanted.catalog_id is not None:
            found = await self._catalog.get(parse_id(wanted.catalog_id))
        elif wanted.path is not None:
            found = await self._catalog.resolve(wanted.path, version_of(wanted.version))
        else:
            raise Unacceptable("name `catalog_id` or `path`")
        if found is None:
            raise UnknownPath(f"the catalog has no {wanted.catalog_id or wanted.path}")
        return Entry(
            catalog_id=found.catalog_id,
            path=found.path,
            kind=found.kind,
            version=found.version,
            content=found.content,
            digest=found.digest,
            created_at=found.created_at,
            meta=found.meta,
            archived_at=found.archived_at,
            created_by=found.created_by,
            message=found.message,
        )


def _item(row: CatalogEntry, *, with_content: bool) -> CatalogItem:
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


def _content(body: Register) -> str:
    content = body.content
    if body.encoding == "base64":
        try:
            content = b64decode(content, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise Unacceptable(
                "`content` is not text in base64",
                errors=({"pointer": "/content", "code": "bad_value"},),
            ) from None
    if len(content.encode()) > MOST_BYTES:
        raise TooLarge(f"a document has at most {MOST_BYTES} bytes")
    return content


def _must_be_writable(path: str, caller: Caller) -> None:
    """Refuse what is kept for the platform: `system/`, and `<tenant>/system/`."""
    first, _, rest = path.partition("/")
    if first == "system" and caller.mark("system:write") != "y":
        raise Forbidden(f"{path} is reserved for the system", code="reserved_namespace")
    is_tenants = first == caller.tenant_id and f"{rest}/".startswith("system/")
    if is_tenants and caller.mark("tenant:system") != "y":
        raise Forbidden(f"{path} is reserved for the tenant", code="reserved_namespace")
