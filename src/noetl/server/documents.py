"""The catalog: documents are checked, then kept under their path for ever."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from noetl.api.catalog import Entry, Registered
from noetl.clock import rfc3339
from noetl.dsl.parse import parse
from noetl.ids import parse as parse_id
from noetl.server.errors import Unacceptable, UnknownPath
from noetl.server.execute import version_of
from noetl.store.base import CatalogEntry

if TYPE_CHECKING:
    from noetl.api.catalog import Register
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.programs import Programs
    from noetl.store.base import Catalog


class Documents:
    """Keeps and finds documents."""

    def __init__(self, catalog: Catalog, programs: Programs, clock: Clock, ids: Ids) -> None:
        self._catalog = catalog
        self._programs = programs
        self._clock = clock
        self._ids = ids

    async def register(self, body: Register) -> Registered:
        """Keep a document; one that equals the newest version changes nothing."""
        parsed = parse(body.content)
        model: Any = parsed.model
        if model is None:
            raise Unacceptable(
                "the document is not valid",
                code="invalid_playbook",
                errors=tuple(dict(item.as_json()) for item in parsed.errors),
            )
        text = body.content.replace("\r\n", "\n")
        made = CatalogEntry(
            catalog_id=self._ids.new(),
            path=model.metadata.path or model.metadata.name,
            version=0,
            kind=parsed.kind.lower(),
            content=body.content,
            digest=sha256(text.encode()).hexdigest(),
            created_at=rfc3339(self._clock.now()),
            message=body.message,
        )
        kept = await self._catalog.add(made)
        return Registered(
            path=kept.path,
            version=kept.version,
            catalog_id=kept.catalog_id,
            kind=kept.kind,
            digest=kept.digest,
            changed=kept.catalog_id == made.catalog_id,
            warnings=tuple(dict(item.as_json()) for item in parsed.warnings),
        )

    async def find(self, catalog_id: str | None, path: str | None, version: str | None) -> Entry:
        """One version of a document."""
        if catalog_id is not None:
            found = await self._catalog.get(parse_id(catalog_id))
        elif path is not None:
            found = await self._catalog.resolve(path, version_of(version))
        else:
            raise Unacceptable("name `catalog_id` or `path`")
        if found is None:
            raise UnknownPath(f"the catalog has no {catalog_id or path}")
        return Entry(
            catalog_id=found.catalog_id,
            path=found.path,
            kind=found.kind,
            version=found.version,
            content=found.content,
            digest=found.digest,
            created_at=found.created_at,
        )
