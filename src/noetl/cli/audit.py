"""`noetl audit`: what was done and refused, by whom."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.paging import Everything, Limit

if TYPE_CHECKING:
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("SEQ", "AT", "ACTOR", "ACTION", "OUTCOME", "FROM", "RESOURCE")


def list_audit(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="ACCOUNT", help="Who did it.")
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="ACTION", help="What; catalog.* of many.")
    ] = None,
    resource: Annotated[
        str | None, typer.Option("--resource", metavar="NAME", help="To what; etl/* of many.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", metavar="CODE", help="ok, or a code of a problem.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Then or later; 2h ago.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Before then.")
    ] = None,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List what was done and refused, the newest first."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import given, show_pages
    from noetl.cli.times import moment
    from noetl.clock import SystemClock

    now = SystemClock().now()
    asked = given(actor=actor, action=action, resource=resource, outcome=outcome)
    if since:
        asked["from"] = moment("--since", since, now)
    if until:
        asked["to"] = moment("--until", until, now)
    look = Look(head=_HEAD, row=_row, name=_name, nothing="nothing of that was done")
    show_pages(
        ctx.obj,
        lambda client, more: client.audit(**asked, **more),
        look,
        None if everything else limit,
    )


def verify(ctx: typer.Context) -> None:
    """Follow the chain of all rows, and name the first that does not fit.

    Ends with 1 when a row was altered, moved or deleted.
    """
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = plain(ask(out, lambda client: client.audit_verify()))
    broken = found["broken"]
    if broken is not None:
        message = f"the audit is not whole: row {broken['seq']} was {_WORDS[broken['reason']]}"
        hint = "compare it with a backup; `noetl audit list` shows what lies around it"
        raise CommandFailed("check_failed", message, hint=hint, details=found)
    show_one(out, found, f"audit/{found['last_seq']}")


_WORDS = {"altered": "altered", "missing": "deleted", "moved": "moved"}


def _name(item: dict[str, Any]) -> str:
    return f"audit/{item['seq']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    facts = (item["actor"] or "-", item["action"], item["outcome"], item["source_ip"] or "-")
    return str(item["seq"]), At(item["at"]), *facts, item["resource"]


_spec = remote_spec

COMMAND = Group(
    about="Show what was done and refused, by whom, and whether what is kept of it is whole.",
    commands={
        "list": _spec(
            list_audit,
            "noetl audit list --action 'catalog.*' --since 2h",
            "noetl audit list --outcome forbidden --limit 5 -o json",
        ),
        "verify": _spec(verify, "noetl audit verify", "noetl audit verify -o json"),
    },
    examples=("noetl audit list", "noetl audit verify"),
)
