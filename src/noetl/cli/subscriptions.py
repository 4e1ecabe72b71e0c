"""`noetl subscriptions`: what listens for messages, what waits, and what was given up."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.deliveries import DELIVERIES, REPLAY
from noetl.cli.failures import CommandFailed
from noetl.cli.letters import DEAD_LETTERS, DISCARD, REDRIVE
from noetl.cli.trying import TEST

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.subscriptions import Action
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_STATES = ("REGISTERED", "ACTIVE", "PAUSED", "DRAINING", "DEACTIVATED")
_HEAD = (
    "SUBSCRIPTION", "PATH", "SOURCE", "MODE", "STATE", "LISTENERS", "LAG", "CIRCUIT", "SPOOL",
)  # fmt: skip
_Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Its path, or its id.")]
_Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the log of events.")
]


def list_subscriptions(
    ctx: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="Only those in this state.")
    ] = None,
) -> None:
    """List subscriptions, by path."""
    from noetl.api.plain import plain
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask
    from noetl.cli.text import nearest

    out: Output = ctx.obj
    wanted = None if state is None else state.upper()
    if wanted is not None and wanted not in _STATES:
        message = f"`--state {state}` is not possible here"
        raise CommandFailed("usage", message, hint=nearest(wanted, _STATES))
    found = ask(out, lambda client: client.subscriptions(wanted))
    look = Look(head=_HEAD, row=_row, name=_name, nothing="no subscription was found")
    show_list(out, [_told(plain(one)) for one in found.subscriptions], look)


def get_subscription(ctx: typer.Context, subscription: _Subscription) -> None:
    """Show one subscription: its state, listeners, lag, circuits and spool."""
    _show(ctx.obj, subscription)


def register(
    ctx: typer.Context,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A Subscription of the catalog, by its path.")
    ],
    reason: _Reason = "",
) -> None:
    """Make a subscription of the catalog known, so that it can be activated."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = _told(plain(ask(out, lambda client: client.register_subscription(path, reason))))
    show_one(out, found, _name(found))


def activate(ctx: typer.Context, subscription: _Subscription, reason: _Reason = "") -> None:
    """Let messages become runs, as soon as a listener is there."""
    _show(ctx.obj, subscription, "activate", reason)


def pause(ctx: typer.Context, subscription: _Subscription, reason: _Reason = "") -> None:
    """Fetch nothing more for now; the source keeps what comes."""
    _show(ctx.obj, subscription, "pause", reason)


def resume(ctx: typer.Context, subscription: _Subscription, reason: _Reason = "") -> None:
    """Go on where it was paused."""
    _show(ctx.obj, subscription, "resume", reason)


def drain(ctx: typer.Context, subscription: _Subscription, reason: _Reason = "") -> None:
    """Fetch nothing more, end what was begun, empty the spool, then stop."""
    _show(ctx.obj, subscription, "drain", reason)


def deactivate(ctx: typer.Context, subscription: _Subscription, reason: _Reason = "") -> None:
    """Stop it, until somebody activates it again."""
    from noetl.cli.asking import guard

    guard(ctx.obj, f"deactivate the subscription {subscription}?")
    _show(ctx.obj, subscription, "deactivate", reason)


def spool(ctx: typer.Context, subscription: _Subscription) -> None:
    """Show what waits in the spool, why, and what was asked to be done with it."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        return plain(await client.subscription(await subscription_of(client, subscription)))

    found = ask(out, work)
    about = ("subscription_id", "path", "state", "spool", "circuit", "pending_actions")
    show_one(out, {key: found[key] for key in about}, _name(found))


def _show(out: "Output", word: str, action: "Action | None" = None, reason: str = "") -> None:
    """Do something with one subscription, and show what became of it."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        subscription_id = await subscription_of(client, word)
        if action is None:
            return plain(await client.subscription(subscription_id))
        return plain(await client.steer_subscription(subscription_id, action, reason))

    found = ask(out, work)
    show_one(out, found if out.is_structured else _told(found), _name(found))


def _told(item: dict[str, Any]) -> dict[str, Any]:
    """A subscription without its document, which the catalog shows."""
    return {key: value for key, value in item.items() if key not in {"spec", "content"}}


def _name(item: dict[str, Any]) -> str:
    return f"subscription/{item['subscription_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    backlog = item["runtime"]["backlog"]
    open_ones = [name for name, one in item["circuit"].items() if one["phase"] != "closed"]
    return (
        item["subscription_id"], item["path"], item["source"], item["activation"] or item["mode"],
        item["state"], str(item["runtime"]["instances"]), "-" if backlog is None else str(backlog),
        f"open: {', '.join(open_ones)}" if open_ones else "closed",
        str(item["spool"]["items"]),
    )  # fmt: skip


_spec = partial(remote_spec, takes="subscriptions", is_mutating=True)
_A = "subscriptions/readings"

COMMAND = Group(
    about="List, activate, pause and stop subscriptions: named by path or id.",
    commands={
        "list": _spec(
            list_subscriptions,
            "noetl subscriptions list",
            "noetl subscriptions list --state active -o json",
            is_mutating=False,
        ),
        "get": _spec(
            get_subscription,
            f"noetl subscriptions get {_A}",
            f"noetl subscriptions get {_A} -o json",
            is_mutating=False,
        ),
        "register": _spec(
            register,
            f"noetl subscriptions register {_A}",
            f"noetl subscriptions register {_A} -o name",
            takes="playbooks",
        ),
        "activate": _spec(
            activate,
            f"noetl subscriptions activate {_A}",
            f"noetl subscriptions activate {_A} -o json",
        ),
        "pause": _spec(
            pause,
            f"noetl subscriptions pause {_A}",
            f"noetl subscriptions pause {_A} --reason 'the plant is serviced'",
        ),
        "resume": _spec(
            resume,
            f"noetl subscriptions resume {_A}",
            f"noetl subscriptions resume {_A} -o name",
        ),
        "drain": _spec(
            drain,
            f"noetl subscriptions drain {_A}",
            f"noetl subscriptions drain {_A} -o json",
        ),
        "deactivate": _spec(
            deactivate,
            f"noetl subscriptions deactivate {_A} --yes",
            f"noetl subscriptions deactivate {_A} -y -o json",
        ),
        "spool": _spec(
            spool,
            f"noetl subscriptions spool {_A}",
            f"noetl subscriptions spool {_A} -o json",
            is_mutating=False,
        ),
        "dead-letters": DEAD_LETTERS,
        "redrive": REDRIVE,
        "discard": DISCARD,
        "deliveries": DELIVERIES,
        "replay": REPLAY,
        "test": TEST,
    },
    examples=("noetl subscriptions list", f"noetl subscriptions pause {_A}"),
)
