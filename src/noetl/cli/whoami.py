"""`noetl whoami`: who the server takes the caller for."""

from typing import TYPE_CHECKING

import typer

from noetl.cli.command import Spec

if TYPE_CHECKING:
    from noetl.cli.output import Output


def whoami(ctx: typer.Context) -> None:
    """Show who you are for the server: account, tenant, roles, and what these allow."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = plain(ask(out, lambda client: client.whoami()))
    show_one(out, found, f"user/{found['account_id'] or found['account']}")


COMMAND = Spec(
    run=whoami,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=("noetl whoami", "noetl whoami -o json"),
    takes="nothing",
    is_remote=True,
)
