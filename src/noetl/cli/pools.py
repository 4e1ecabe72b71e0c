"""`noetl pools`: the pools of workers, and what waits for them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec, nearest
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("POOL", "WORKERS", "SLOTS", "FREE", "IN FLIGHT", "PENDING", "OLDEST")
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
    from noetl.cli.text import columns

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
        out.write(columns([_HEAD, _row(known[name])], out.width))
        look = Look(head=_WORKER, row=_worker, name=_name, nothing="no worker is known")
        show_list(out, workers, look)


def _name(pool: dict[str, Any]) -> str:
    return f"pool/{pool['pool']}"


def _row(pool: dict[str, Any]) -> tuple[str, ...]:
    numbers = ("workers", "slots", "free_slots", "in_flight", "pending")
    oldest = _ago(pool["oldest_pending_at"])
    return (pool["pool"], *(str(pool[key]) for key in numbers), oldest)


def _worker(one: dict[str, Any]) -> tuple[str, ...]:
    version = str(one["runtime"].get("version") or "-")
    slots = (str(one["capacity"]), str(one["free_slots"]))
    return one["name"], one["status"], *slots, one["hostname"], version, _ago(one["heartbeat"])


def _ago(at: str | None) -> str:
    from noetl.cli.times import ago
    from noetl.clock import SystemClock

    return ago(at, SystemClock().now()) if at else "-"


COMMAND = Group(
    about="Show the pools of workers: how many slots they have, and what waits for them.",
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
            takes="nothing",
            is_remote=True,
        ),
    },
    examples=("noetl pools list", "noetl pools get shared -o json"),
)
