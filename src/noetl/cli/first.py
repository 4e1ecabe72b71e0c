"""`noetl db admin`: the first account of an installation whose processes are started one by one."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.databases import DatabaseUrl, with_database

if TYPE_CHECKING:
    from noetl.cli.output import Output


def admin(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The account's name.")] = "admin",
    database_url: DatabaseUrl = None,
) -> None:
    """Make an account that may do everything, and a token of it.

    `noetl up` does this by itself. Whoever can open the database can do it anywhere else:
    the token is shown once, lasts 90 days, and makes the other accounts. An account of that
    name that is there already gets one more token.
    """
    out: Output = ctx.obj

    async def work(url: str) -> dict[str, str]:
        from noetl.server.admin import first_admin

        token, expires_at = await first_admin(url, name)
        return {"account": name, "token": token, "expires_at": expires_at}

    made = with_database(out, database_url, work)
    if out.is_structured:
        out.document(made)
        return
    out.line(made["token"])
    out.note(f"a token of `{name}` until {made['expires_at']}; it is not shown again")


_NONE = '--database-url postgresql://127.0.0.1:1/noetl || echo "not there"'

ADMIN = Spec(
    run=admin,
    outputs=("table", "json", "yaml", "jsonl"),
    examples=(f"noetl db admin {_NONE}", f"noetl db admin ada -o json {_NONE}"),
    is_mutating=True,
)
