"""`noetl subscriptions dead-letters`, `redrive` and `discard`: messages that are not tried more."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.paging import Everything, Limit

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.subscriptions import DeadLetters, LettersWanted
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_HEAD = ("LETTER", "MESSAGE", "REASON", "ATTEMPTS", "WHEN")
_Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Its path, or its id.")]
_Refs = Annotated[
    list[str] | None, typer.Argument(metavar="LETTER", help="Dead letters, as the list shows them.")
]
_All = Annotated[bool, typer.Option("--all", help="All that there are now.")]


def dead_letters(
    ctx: typer.Context,
    subscription: _Subscription,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List messages that are not tried any more, oldest first."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import show_pages
    from noetl.cli.references import subscription_of

    look = Look(head=_HEAD, row=_row, name=lambda item: item["ref"], nothing="no dead letter")
    known: dict[str, str] = {}

    async def page(client: "Client", more: dict[str, Any]) -> "DeadLetters":
        if not known:
            known["id"] = await subscription_of(client, subscription)
        return await client.dead_letters(known["id"], **more)

    show_pages(ctx.obj, page, look, None if everything else limit)


def redrive(
    ctx: typer.Context,
    subscription: _Subscription,
    refs: _Refs = None,
    everything: _All = False,  # noqa: FBT002 - as above
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.001, help="So many a second at most."),
    ] = None,
) -> None:
    """Send dead letters again; whoever keeps them does it, each in its old place."""
    from noetl.api.subscriptions import LettersWanted

    wanted = _wanted(refs, everything)
    body = LettersWanted(refs=wanted, all=everything, rate=rate)
    _request(ctx.obj, subscription, "redrive", body)


def discard(
    ctx: typer.Context,
    subscription: _Subscription,
    refs: _Refs = None,
    everything: _All = False,  # noqa: FBT002 - as above
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the log of events.")
    ] = "",
) -> None:
    """Drop dead letters; what they held is lost."""
    from noetl.api.subscriptions import LettersWanted
    from noetl.cli.asking import guard

    wanted = _wanted(refs, everything)
    what = "every dead letter" if everything else f"{len(wanted)} dead letters"
    guard(ctx.obj, f"discard {what} of {subscription}?")
    body = LettersWanted(refs=wanted, all=everything, reason=reason)
    _request(ctx.obj, subscription, "discard", body)


def _wanted(refs: list[str] | None, everything: bool) -> tuple[str, ...]:  # noqa: FBT001 - an option
    found = tuple(dict.fromkeys(refs or ()))
    if bool(found) == everything:
        message = "name dead letters, or all of them: exactly one of the two"
        raise CommandFailed("usage", message, hint="give their names, or `--all`")
    return found


def _request(out: "Output", word: str, verb: str, body: "LettersWanted") -> None:
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        subscription_id = await subscription_of(client, word)
        return plain(await getattr(client, verb)(subscription_id, body))

    found = ask(out, work)
    show_one(out, found, f"event/{found['request_id']}")


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    return (
        item["ref"], item["message_id"] or "-", item["reason"], str(item["attempts"]),
        At(item["at"]),
    )  # fmt: skip


_A = "subscriptions/readings"
DEAD_LETTERS = remote_spec(
    dead_letters,
    f"noetl subscriptions dead-letters {_A}",
    f"noetl subscriptions dead-letters {_A} --all -o jsonl",
    takes="subscriptions",
)
REDRIVE = remote_spec(
    redrive,
    f"noetl subscriptions redrive {_A} --all",
    f"noetl subscriptions redrive {_A} --all --rate 50 -o json",
    takes="subscriptions",
    is_mutating=True,
)
DISCARD = remote_spec(
    discard,
    f"noetl subscriptions discard {_A} --all --yes",
    f"noetl subscriptions discard {_A} --all -y --reason 'tested' -o json",
    takes="subscriptions",
    is_mutating=True,
)
