"""`noetl catalog`: the documents of a server."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.exporting import EXPORT
from noetl.cli.paging import Everything, Limit
from noetl.cli.shelving import ARCHIVE, DELETE, PROMOTE, RESTORE

if TYPE_CHECKING:
    from noetl.api.catalog import Entry
    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("PATH", "VERSION", "KIND", "CREATED", "BY", "ABOUT")
_VERSIONS = ("", "VERSION", "STATE", "CREATED", "BY", "RUNS", "MESSAGE")
_NOT_THERE = 404
_Document = Annotated[
    str, typer.Argument(metavar="PATH", help="PATH, PATH@VERSION, or a catalog id.")
]


def list_documents(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Like playbook, or subscription.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PATH", help="Only paths that begin so.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help="In path, name, description or tags."),
    ] = None,
    archived: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--archived", help="Those too that were put away.")
    ] = False,
    versions: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--versions", help="Every version, not what each path means.")
    ] = False,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - as above
) -> None:
    """List documents, by path."""
    from noetl.api.catalog import CatalogQuery
    from noetl.cli.listing import Look
    from noetl.cli.paging import given, show_pages

    asked = given(resource_type=kind, path_prefix=prefix, q=text)
    asked |= {"include_archived": archived, "versions": "all" if versions else "latest"}
    look = Look(head=_HEAD, row=_row, name=_name, nothing="no document was found")
    show_pages(
        ctx.obj,
        lambda client, more: client.catalog(CatalogQuery(**asked, **more)),
        look,
        None if everything else limit,
        part="entries",
    )


def get_document(ctx: typer.Context, document: _Document) -> None:
    """Print a document as it was registered; with -o json, all that is known of it."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = ask(out, lambda client: _entry(client, document))
    if out.is_structured or out.format == "name":
        item = plain(found)
        show_one(out, item, _name(item))
    else:
        out.write(found.content if found.content.endswith("\n") else f"{found.content}\n")


async def _entry(client: "Client", word: str) -> "Entry":
    """A version of a document, an archived one too when it is named."""
    from noetl.api.problems import Refused
    from noetl.cli.references import document_of

    if word.isascii() and word.isdigit():
        return await client.entry(word)
    named = await document_of(client, word)
    try:
        return await client.resolve(named.path, named.version)
    except Refused as fault:
        if fault.problem.status != _NOT_THERE or named.version is None:
            raise
        async for item in _versions(client, named.path):
            if str(item["version"]) == named.version:
                return await client.entry(item["catalog_id"])
        raise


async def _versions(client: "Client", path: str) -> Any:  # noqa: ANN401 - of plain maps
    from noetl.cli.paging import all_pages

    found, _ = await all_pages(client, lambda at, more: at.versions(path, **more), None)
    for item in found:
        yield item


def list_versions(
    ctx: typer.Context,
    document: Annotated[str, typer.Argument(metavar="PATH", help="The path of a document.")],
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List the versions of a document, newest first; a star marks what its path means."""
    from noetl.cli.listing import Look, show_list
    from noetl.cli.paging import all_pages
    from noetl.cli.references import document_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> tuple[str, list[dict[str, Any]], str | None]:
        path = (await document_of(client, document)).path
        found = await all_pages(
            client, lambda at, more: at.versions(path, **more), None if everything else limit
        )
        return path, *found

    path, items, cursor = ask(out, work)
    look = Look(head=_VERSIONS, row=_version, name=lambda item: _name({**item, "path": path}))
    show_list(out, items, look, cursor)


def _name(item: dict[str, Any]) -> str:
    return f"{item['kind']}/{item['path']}@{item['version']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    about = (item["meta"] or {}).get("description") or ""
    facts = (str(item["version"]), item["kind"] + (" (archived)" if item["archived_at"] else ""))
    return item["path"], *facts, At(item["created_at"]), item["created_by"] or "-", about


def _version(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    state = "archived" if item["archived"] else "-"
    made = (At(item["created_at"]), item["created_by"] or "-", str(item["execution_count"]))
    return "*" * item["active"], str(item["version"]), state, *made, item["message"]


_spec = partial(remote_spec, takes="playbooks")

COMMAND = Group(
    about="List, show, promote, put away and export documents: named by PATH or PATH@VERSION.",
    commands={
        "list": _spec(
            list_documents,
            "noetl catalog list --prefix examples/ --limit 5",
            "noetl catalog list --text hello -o name",
        ),
        "get": _spec(
            get_document,
            "noetl catalog get examples/hello@1 > hello.yaml",
            "noetl catalog list --text hello -o name | xargs -n 1 noetl catalog get -o json",
        ),
        "versions": _spec(
            list_versions,
            "noetl catalog versions examples/hello",
            "noetl catalog versions examples/hello -o json",
        ),
        "promote": PROMOTE,
        "archive": ARCHIVE,
        "restore": RESTORE,
        "delete": DELETE,
        "export": EXPORT,
    },
    examples=("noetl catalog list", "noetl catalog get examples/hello"),
)
