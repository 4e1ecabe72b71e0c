"""`noetl workers`: the workers of all pools."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec

if TYPE_CHECKING:
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_HEAD = ("WORKER", "POOL", "STATUS", "SLOTS", "FREE", "HOST", "VERSION", "HEARTBEAT")


def list_workers(
    ctx: typer.Context,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="Only those of this pool.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="STATUS", help="Like ready, draining, stale, offline."),
    ] = None,
) -> None:
    """List workers: their pool, slots, host, version, and when each was last heard of."""
    from noetl.api.plain import plain
    from noetl.cli.listing import Look, show_list
    from noetl.cli.paging import given
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    asked = given(kind="worker_pool", status=status)
    found = ask(out, lambda client: client.pools(**asked))
    wanted = None if pool is None else pool.removeprefix("pool/")
    items = [plain(one) for one in found.items if wanted in {None, one.pool}]
    look = Look(head=_HEAD, row=_row, name=_name, nothing="there is no worker")
    show_list(out, items, look)


def _name(one: dict[str, Any]) -> str:
    return f"worker/{one['name']}"


def _row(one: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    slots = (str(one["capacity"]), str(one["free_slots"]))
    version = str(one["runtime"].get("version") or "-")
    facts = (one["name"], one["pool"], one["status"], *slots, one["hostname"] or "-", version)
    return (*facts, At(one["heartbeat"]))


COMMAND = Group(
    about="Show the workers of all pools.",
    commands={
        "list": Spec(
            run=list_workers,
            outputs=("table", "json", "yaml", "jsonl", "name"),
            examples=("noetl workers list", "noetl workers list --pool gpu -o json"),
            takes="nothing",
            is_remote=True,
        ),
    },
    examples=("noetl workers list", "noetl workers list --status ready -o name"),
)
