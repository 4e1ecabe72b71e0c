"""`noetl db query`, also `noetl query`: one statement that reads."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.databases import DatabaseUrl, with_database

if TYPE_CHECKING:
    from noetl.cli.output import Output


def query(
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One statement that reads; - stdin.")],
    schema: Annotated[
        str, typer.Option("-s", "--schema", metavar="SCHEMA", help="Where names are looked for.")
    ] = "noetl",
    database_url: DatabaseUrl = None,
) -> None:
    """Ask the database: one statement, read only, at most 10 s and 10,000 rows.

    json is {"status": "ok", "result": [..]}; ids are texts.
    """
    from noetl.cli.files import STDIN, read
    from noetl.cli.listing import Look, show_list

    out: Output = ctx.obj
    text = read(STDIN).data.decode("utf-8", "replace") if sql == STDIN else sql

    async def work(url: str) -> tuple[list[dict[str, Any]], bool]:
        from noetl.server.admin import query as ask

        return await ask(url, text, schema)

    rows, is_cut = with_database(out, database_url, work)
    if is_cut:
        out.note(f"only the first {len(rows)} rows are shown")
    if out.format in {"json", "yaml"}:
        out.document({"status": "ok", "result": rows})
        return
    out.is_wide = True
    look = Look(head=(), row=lambda _: (), name=_name, nothing="no rows")
    show_list(out, rows, look)


def _name(row: dict[str, Any]) -> str:
    return str(next(iter(row.values()), ""))


QUERY = Spec(
    run=query,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    output_aliases=("--format",),
    examples=(
        'noetl db query "select count(*) from execution" || echo "no database"',
        'noetl query "select path, status from execution limit 5" -o json || echo "no database"',
    ),
    takes="nothing",
)
