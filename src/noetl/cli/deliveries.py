"""`noetl subscriptions deliveries` and `replay`: what senders delivered, and what is run again."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import Answered, CommandFailed
from noetl.cli.paging import Everything, Limit

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.ingress import ReplayDeliveries
    from noetl.api.subscriptions import Deliveries
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

PREFIX = "delivery/"
_HEAD = ("DELIVERY", "AT", "OUTCOME", "REASON", "STATUS", "MESSAGE", "EXECUTION", "MS")
_REPLAYED = ("DELIVERY", "STATUS", "EXECUTION", "CODE")
_FAILED = ("refused", "not_replayable")
_UNKNOWN_CODE = 422
_LONGEST = 24
_Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="Its path, or its id.")]
_Delivery = Annotated[
    str | None, typer.Argument(metavar="DELIVERY", help="One of them, as the list shows it.")
]
_Outcome = Annotated[
    str | None,
    typer.Option("--outcome", metavar="WORD", help="accepted, duplicate, spooled, rejected .."),
]
_Reason = Annotated[
    str | None, typer.Option("--reason", metavar="CODE", help="Like bad_signature.")
]
_Message = Annotated[
    str | None, typer.Option("--message-id", metavar="ID", help="The sender's id of the message.")
]
_Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Then or later; 2h.")]
_Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before then.")]


def deliveries(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    subscription: _Subscription,
    delivery: _Delivery = None,
    outcome: _Outcome = None,
    reason: _Reason = None,
    message_id: _Message = None,
    since: _Since = None,
    until: _Until = None,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List what senders delivered in the last 7 days, newest first, or show one delivery."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import show_pages
    from noetl.cli.references import subscription_of

    asked = _filter(outcome, reason, message_id, since, until)
    if delivery is not None:
        _must_be_alone(asked)
        _show(ctx.obj, subscription, delivery)
        return
    look = Look(head=_HEAD, row=_row, name=_name, nothing="nothing was delivered")
    known: dict[str, str] = {}

    async def page(client: "Client", more: dict[str, Any]) -> "Deliveries":
        if not known:
            known["id"] = await subscription_of(client, subscription)
        return await client.deliveries(known["id"], **asked, **more)

    show_pages(ctx.obj, page, look, None if everything else limit)


def replay(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    subscription: _Subscription,
    delivery: _Delivery = None,
    outcome: _Outcome = None,
    reason: _Reason = None,
    message_id: _Message = None,
    since: _Since = None,
    until: _Until = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most (100).")
    ] = 100,
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help="Why; it stands in the audit.")
    ] = "",
) -> None:
    """Run one delivery once more, or those that a filter finds, oldest first.

    Each is a run of its own. A rejected one is verified again, without regard to its time; for
    that its listener has to keep what it rejects, which it does for 24 hours at most. One that
    came with a token, a key or a password (bearer, basic, api_key, jwt, oidc, pubsub_oidc) is
    `not_replayable`: what proved it is kept nowhere.
    """
    from noetl.api.ingress import DeliveryFilter, ReplayDeliveries

    asked = _filter(outcome, reason, message_id, since, until)
    if delivery is not None:
        _must_be_alone(asked)
        _replay_one(ctx.obj, subscription, delivery, because)
        return
    if not asked:
        message = "name a delivery, or what deliveries are meant: exactly one of the two"
        raise CommandFailed("usage", message, hint="give its id, or `--outcome`, `--since` ..")
    body = ReplayDeliveries(filter=DeliveryFilter(**asked), limit=limit, reason=because)
    _replay_many(ctx.obj, subscription, body)


def _filter(
    outcome: str | None,
    reason: str | None,
    message_id: str | None,
    since: str | None,
    until: str | None,
) -> dict[str, Any]:
    """What was named of a filter, times as the server takes them."""
    from noetl.cli.paging import given
    from noetl.cli.times import moment
    from noetl.clock import SystemClock

    now = SystemClock().now()
    return given(
        outcome=outcome,
        reason=reason,
        message_id=message_id,
        since=since and moment("--since", since, now),
        until=until and moment("--until", until, now),
    )


def _must_be_alone(asked: dict[str, Any]) -> None:
    if asked:
        message = "one delivery and a filter exclude each other"
        raise CommandFailed("usage", message, hint="leave one of them out")


def _show(out: "Output", word: str, delivery: str) -> None:
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        subscription_id = await subscription_of(client, word)
        return plain(await client.delivery(subscription_id, delivery.removeprefix(PREFIX)))

    found = ask(out, work)
    show_one(out, found, _name(found))


def _replay_one(out: "Output", word: str, delivery: str, because: str) -> None:
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        subscription_id = await subscription_of(client, word)
        delivery_id = delivery.removeprefix(PREFIX)
        return plain(await client.replay_delivery(subscription_id, delivery_id, because))

    done = ask(out, work)
    if done["status"] in _FAILED:
        raise refused(done, f"delivery {done['delivery_id']} was not replayed: {_why(done)}")
    show_one(out, done, f"execution/{done.get('execution_id') or '-'}")


def _replay_many(out: "Output", word: str, body: "ReplayDeliveries") -> None:
    from noetl.api.plain import plain
    from noetl.cli.listing import Look, show_list
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> list[dict[str, Any]]:
        subscription_id = await subscription_of(client, word)
        answer = await client.replay_deliveries(subscription_id, body)
        return [plain(item) for item in answer.items]

    done = ask(out, work)
    look = Look(
        head=_REPLAYED,
        row=_replayed,
        name=lambda item: f"execution/{item.get('execution_id') or '-'}",
        nothing="no such delivery was found",
    )
    show_list(out, done, look)
    if len(done) == body.limit:
        out.note("there may be more; do it again with `--since`, or with a larger `--limit`")
    failed = sum(1 for item in done if item["status"] in _FAILED)
    if failed:
        message = f"{failed} of {len(done)} deliveries were not replayed"
        raise CommandFailed("bulk_failed", message, hint="the list says why")


def refused(told: dict[str, Any], message: str, status: int | None = None) -> CommandFailed:
    """How a command ends whose delivery was refused, with the exit code of its status."""
    from noetl.api.codes import PROBLEMS
    from noetl.api.problems import Problem

    code = told.get("code") or told.get("outcome") or told["status"]
    known = PROBLEMS.get(str(code))
    if status is None:
        status = known.status if known is not None else _UNKNOWN_CODE
    made = Answered(Problem(type="", title="", status=status, code=str(code), detail=message))
    # It is the sender who was refused, not whoever types the command.
    made.hint = known.remedy if known is not None else ""
    made.details = told
    return made


def _why(item: dict[str, Any]) -> str:
    return str(item.get("code") or item["status"])


def _name(item: dict[str, Any]) -> str:
    return f"{PREFIX}{item['delivery_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    duration = item.get("duration_ms")
    return (
        item["delivery_id"], At(item["at"]), item["outcome"], item.get("reason") or "-",
        str(item.get("status") or "-"), _short(item.get("message_id") or "-"),
        item.get("execution_id") or "-", "-" if duration is None else f"{duration:.0f}",
    )  # fmt: skip


def _short(text: str) -> str:
    """An id of a message; without one it is a digest, of which the begin is enough here."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _replayed(item: dict[str, Any]) -> "tuple[Cell, ...]":
    execution_id = item.get("execution_id") or "-"
    return item["delivery_id"], item["status"], execution_id, item.get("code") or "-"


_A = "subscriptions/orders"
DELIVERIES = remote_spec(
    deliveries,
    f"noetl subscriptions deliveries {_A} --outcome rejected --since 1h",
    f"noetl subscriptions deliveries {_A} --all -o jsonl",
    f"noetl subscriptions deliveries {_A} --limit 1 -o name"
    f" | xargs -r -n 1 noetl subscriptions deliveries {_A}",
    takes="subscriptions",
)
REPLAY = remote_spec(
    replay,
    f"noetl subscriptions replay {_A} --outcome accepted --since 1h --limit 50",
    f"noetl subscriptions deliveries {_A} --outcome accepted --limit 1 -o name"
    f" | xargs -r -n 1 noetl subscriptions replay {_A} --because 'the store was empty'",
    takes="subscriptions",
    is_mutating=True,
)
