"""Documents, their kinds and their tests."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from noetl.api.catalog import (
    CasesRun,
    CatalogPage,
    CatalogQuery,
    CheckedDocument,
    Difference,
    DocumentGraph,
    DocumentKinds,
    Entry,
    Form,
    Promote,
    Promoted,
    Register,
    Registered,
    Removal,
    RunTests,
    Settled,
    ToolKind,
    ToolKinds,
    Validate,
    VersionPage,
)
from noetl.api.client.calls import Calls, document_path, query, segment


class Library(Calls):
    """Documents, their kinds and their tests."""

    async def register(self, body: Register) -> Registered:
        """Keep a document in the catalog."""
        return await self._post("/api/catalog/register", body, Registered)

    async def entry(self, catalog_id: str) -> Entry:
        """A document by its id."""
        return await self._get(
            f"/api/catalog/resource?{urlencode({'catalog_id': catalog_id})}", Entry
        )

    async def resolve(self, path: str, version: str | int | None = None) -> Entry:
        """A document by its path; the newest version unless one is named."""
        asked = {"path": path} if version is None else {"path": path, "version": str(version)}
        return await self._get(f"/api/catalog/resource?{urlencode(asked)}", Entry)

    async def catalog(self, body: CatalogQuery) -> CatalogPage:
        """A page of documents."""
        return await self._post("/api/catalog/list", body, CatalogPage)

    async def validate(self, body: Validate) -> CheckedDocument:
        """Everything that is found in a document, which is not kept."""
        return await self._post("/api/catalog/validate", body, CheckedDocument)

    async def versions(
        self, path: str, *, limit: int = 50, cursor: str | None = None
    ) -> VersionPage:
        """The versions of a document, newest first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self._get(query(f"{document_path(path)}/versions", asked), VersionPage)

    async def difference(
        self, path: str, before: str | int | None = None, after: str | int | None = None
    ) -> Difference:
        """Two versions side by side: without names, what the path means and the one before it."""
        asked = {"from": before, "to": after}
        return await self._get(query(f"{document_path(path)}/diff", asked), Difference)

    async def form(self, path: str, version: str | int | None = None) -> Form:
        """The run form of a playbook."""
        return await self._get(
            query(f"{document_path(path)}/ui_schema", {"version": version}), Form
        )

    async def document_graph(self, path: str, version: str | int | None = None) -> DocumentGraph:
        """The steps and arcs of a playbook."""
        asked = query(f"{document_path(path)}/graph", {"version": version})
        return await self._get(asked, DocumentGraph)

    async def promote(self, path: str, version: str | int) -> Promoted:
        """Make a version what its path means."""
        return await self._post(
            f"{document_path(path)}/promote", Promote(version=version), Promoted
        )

    async def delete_document(self, body: Removal) -> Settled:
        """Remove versions; those with executions are archived."""
        return await self._post("/api/catalog/delete", body, Settled)

    async def archive_document(self, body: Removal) -> Settled:
        """Put versions away."""
        return await self._post("/api/catalog/archive", body, Settled)

    async def restore_document(self, body: Removal) -> Settled:
        """Bring archived versions back."""
        return await self._post("/api/catalog/restore", body, Settled)

    async def run_tests(self, path: str, body: RunTests) -> CasesRun:
        """Play the tests of a playbook, or one document of them, on the server."""
        return await self._post(f"/api/playbook-tests/{quote(path)}/run", body, CasesRun)

    async def tools(self) -> ToolKinds:
        """The kinds of tools."""
        return await self._get("/api/tools", ToolKinds)

    async def tool(self, kind: str) -> ToolKind:
        """A kind of tool, with its JSON Schema."""
        return await self._get(f"/api/tools/{segment(kind)}", ToolKind)

    async def kinds(self) -> DocumentKinds:
        """The kinds of documents."""
        return await self._get("/api/schema", DocumentKinds)

    async def schema(self, kind: str) -> dict[str, Any]:
        """The JSON Schema of a kind of document."""
        return await self._get(f"/api/schema/{segment(kind)}", dict[str, Any])
