"""`noetl pools`: the pools of workers, and what waits for them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("POOL", "WORKERS", "SLOTS", "FREE", "IN FLIGHT", "PENDING", "OLDEST", "LAG")
_WORKER = ("WORKER", "STATUS", "SLOTS", "FREE", "HOST", "PYTHON", "HEARTBEAT")


def list_pools(ctx: typer.Context) -> None:
    """List the pools: workers, slots, what is in flight, and what waits."""
    from noetl.api.plain import plain
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = ask(out, lambda client: client.pools())
    look = Look(head=_HEAD, row=_row, name=_name, nothing="there is no pool")
    show_list(out, [plain(pool) for pool in found.pools], look)


def get_pool(
    ctx: typer.Context, pool: Annotated[str, typer.Argument(metavar="POOL", help="Its name.")]
) -> None:
    """Show one pool and its workers."""
    from noetl.api.plain import plain
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    name = pool.removeprefix("pool/")
    found = ask(out, lambda client: client.pools())
    known = {one.pool: plain(one) for one in found.pools}
    if name not in known:
        hint = nearest(name, tuple(known)) if known else "start a worker with `noetl worker`"
        raise CommandFailed("not_found", f"there is no pool `{name}`", hint=hint)
    workers = [plain(one) for one in found.items if one.pool == name]
    if out.is_structured:
        out.document({**known[name], "items": workers})
    elif out.format == "name":
        out.line(_name(known[name]))
    else:
        show_list(out, [known[name]], Look(head=_HEAD, row=_row, name=_name))
        look = Look(head=_WORKER, row=_worker, name=_name, nothing="no worker is known")
        show_list(out, workers, look)


def drain_pool(
    ctx: typer.Context,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Its name.")],
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="NAME", help="Only this worker of it.")
    ] = None,
) -> None:
    """Let the workers of a pool end what they do and take on nothing more.

    They are told with their next heartbeat. What waits for the pool waits for other workers.
    """
    from noetl.api.plain import plain
    from noetl.cli.asking import guard
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    name = pool.removeprefix("pool/")
    only = None if worker is None else worker.removeprefix("worker/")
    guard(out, f"drain the pool {name}?" if only is None else f"drain {only} of {name}?")
    found = plain(ask(out, lambda client: client.drain_pool(name, only)))
    show_one(out, found, _name(found))


def _name(pool: dict[str, Any]) -> str:
    return f"pool/{pool['pool']}"


def _row(pool: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    numbers = ("workers", "slots", "free_slots", "in_flight", "pending")
    oldest = At(pool["oldest_pending_at"])
    lag = "-" if pool["consumer_lag"] is None else str(pool["consumer_lag"])
    return (pool["pool"], *(str(pool[key]) for key in numbers), oldest, lag)


def _worker(one: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    version = str(one["runtime"].get("version") or "-")
    slots = (str(one["capacity"]), str(one["free_slots"]))
    return one["name"], one["status"], *slots, one["hostname"], version, At(one["heartbeat"])


COMMAND = Group(
    about="Show pools of workers, how many slots they have and what waits; let them end.",
    commands={
        "list": Spec(
            run=list_pools,
            outputs=_OUTPUTS,
            examples=("noetl pools list", "noetl pools list -o json"),
            takes="nothing",
            is_remote=True,
        ),
        "get": Spec(
            run=get_pool,
            outputs=_OUTPUTS,
            examples=("noetl pools get shared", "noetl pools get shared -o yaml"),
            takes="pools",
            is_remote=True,
        ),
        "drain": Spec(
            run=drain_pool,
            outputs=_OUTPUTS,
            examples=(
                "noetl pools drain gpu --worker gpu-1 --yes",
                "noetl pools drain gpu --yes -o json",
            ),
            takes="pools",
            is_remote=True,
            is_mutating=True,
        ),
    },
    examples=("noetl pools list", "noetl pools get shared -o json"),
)
