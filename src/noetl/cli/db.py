"""`noetl db`: the schema of a database."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec, nearest
from noetl.cli.failures import CommandFailed, failure_of

if TYPE_CHECKING:
    from noetl.cli.output import Output

_ACTIONS = ("migrate", "status")


def db(
    ctx: typer.Context,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="migrate or status.")],
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="Another than the stack's."),
    ] = None,
) -> None:
    """Bring a database to this release (migrate), or say what it lacks (status).

    The database is the one of --database-url, NOETL_DATABASE_URL, or the embedded stack. Only
    these commands open it. Migrations go forward only, one migrator at a time.
    """
    from noetl.cli.stacks import database_url_of
    from noetl.errors import NoetlError

    out: Output = ctx.obj
    if action not in _ACTIONS:
        raise CommandFailed("usage", f"there is no `db {action}`", hint=nearest(action, _ACTIONS))
    try:
        url = database_url_of(out, database_url)
        if not url:
            raise CommandFailed(
                "stack_not_running",
                "no database was named, and no embedded stack runs here",
                hint="give `--database-url`, or start one with `noetl up`",
            )
        (_migrate if action == "migrate" else _status)(out, url)
    except NoetlError as fault:
        raise failure_of(fault) from fault


def _migrate(out: "Output", url: str) -> None:
    import asyncio

    from noetl.cli.text import counted
    from noetl.server.admin import migrate

    applied = asyncio.run(migrate(url))
    if out.is_structured:
        out.document({"applied": applied})
        return
    for name in applied:
        out.line(name)
    out.note(f"{counted(len(applied), 'migration')} applied" if applied else "nothing to do")


def _status(out: "Output", url: str) -> None:
    import asyncio

    from noetl.cli.text import columns
    from noetl.server.admin import changes

    found = asyncio.run(changes(url))
    if out.is_structured:
        out.items([asdict(change) for change in found])
    else:
        rows = [(one.name, "applied" if one.is_applied else "missing") for one in found]
        out.write(columns(rows, out.width))


COMMAND = Spec(
    run=db,
    outputs=("table", "json", "yaml", "jsonl"),
    examples=(
        'noetl db status || echo "no database"',
        'noetl db migrate --database-url postgresql://127.0.0.1:1/noetl || echo "not there"',
    ),
    takes="nothing",
)
