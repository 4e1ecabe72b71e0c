"""Programs by catalog id: each version of a playbook is read and analysed once."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from noetl.dsl.draining import aliases_of, drain_of
from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.dsl.secret_inputs import secret_paths
from noetl.dsl.subscription.document import Subscription
from noetl.edge.errors import Unacceptable, UnknownPath
from noetl.engine.program import prepare

if TYPE_CHECKING:
    from noetl.dsl.parse import Parsed
    from noetl.engine.program import Program
    from noetl.store.base import Catalog, CatalogEntry

MOST_PROGRAMS: Final = 1_000
_ENTRY: Final = ("/workflow", "/executor/spec/entry_step")
"""Where a document says which step is the first."""


class Programs:
    """The newest used programs; a version never changes, so none goes stale."""

    def __init__(
        self, catalog: Catalog, most: int = MOST_PROGRAMS, *, max_attempts: int = 3
    ) -> None:
        self._max_attempts = max_attempts
        self._catalog = catalog
        self._most = most
        self._kept: OrderedDict[str, Program] = OrderedDict()

    async def get(self, catalog_id: str) -> Program:
        """The program of one version."""
        found = self._kept.get(catalog_id)
        if found is not None:
            self._kept.move_to_end(catalog_id)
            return found
        entry = await self._catalog.get(catalog_id)
        if entry is None:
            raise UnknownPath(f"the catalog has no entry {catalog_id}")
        return self.of(entry)

    def of(self, entry: CatalogEntry) -> Program:
        """The program of an entry that is at hand."""
        found = self._kept.get(entry.catalog_id)
        if found is None:
            parsed = _parsed(entry)
            if isinstance(parsed.model, Subscription):  # its ticks drain it, and nothing else runs
                found = prepare(drain_of(parsed.model))
                found.aliases = aliases_of(parsed.model.spec)
            else:
                found = prepare(_playbook(entry, parsed))
                found.secret = secret_paths(parsed)
            found.max_attempts = self._max_attempts
            self._kept[entry.catalog_id] = found
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found


def _parsed(entry: CatalogEntry) -> Parsed:
    return parse(entry.content, plugins=STORED)


def _playbook(entry: CatalogEntry, parsed: Parsed) -> Playbook:
    if isinstance(parsed.model, Playbook):
        return parsed.model
    if parsed.model is not None:
        raise Unacceptable(
            f"{entry.path} is of kind {parsed.kind} and cannot be run", code="not_executable"
        )
    has_entry = all(item.pointer not in _ENTRY for item in parsed.errors)
    raise Unacceptable(
        f"{entry.path} version {entry.version} is not a valid playbook",
        code="invalid_playbook" if has_entry else "no_entry_step",
        errors=tuple(dict(item.as_json()) for item in parsed.errors),
    )
