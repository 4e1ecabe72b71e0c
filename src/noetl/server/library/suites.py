"""The tests of playbooks that the catalog holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.parse import parse
from noetl.dsl.plugins import STORED
from noetl.store.base import CatalogListing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.store.base import Catalog, CatalogEntry

TEST: Final = "playbook_test"
MOST_SUITES: Final = 200


class Suites:
    """Finds the tests of a playbook."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def of(self, tenant_id: str, path: str) -> list[CatalogEntry]:
        """What tests a playbook, by path."""
        listing = CatalogListing(limit=MOST_SUITES, kind=TEST, tests=path)
        return await self._catalog.listed(tenant_id, listing)

    async def gates(self, tenant_id: str, path: str) -> list[CatalogEntry]:
        """What must pass before a version of a playbook becomes what its path means."""
        return [entry for entry in await self.of(tenant_id, path) if entry.meta.get("gate")]


def suite_of(entry: CatalogEntry) -> PlaybookTest | None:
    """The tests of an entry; none when it holds something else, or no longer parses."""
    model = parse(entry.content, plugins=STORED).model
    return model if isinstance(model, PlaybookTest) else None


def namers(entries: Iterable[CatalogEntry]) -> dict[str, list[str]]:
    """Which tests name a step, by step."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        suite = suite_of(entry)
        for case in suite.spec.cases if suite is not None else ():
            steps = (*(mock.step for mock in case.mocks), *case.expect.steps, *case.expect.calls)
            for step in steps:
                who = found.setdefault(step, [])
                if entry.path not in who:
                    who.append(entry.path)
    return found
