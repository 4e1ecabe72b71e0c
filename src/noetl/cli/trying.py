"""`noetl subscriptions test`: a delivery that is signed as its sender would sign it, and sent."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import EXIT_OF_STATUS, CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.ingress import TestDelivery
    from noetl.cli.output import Output

_REFUSED = 400
_MOST_BYTES = 10 << 20


def send(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    subscription: Annotated[
        str, typer.Argument(metavar="SUBSCRIPTION", help="Its path, or its id.")
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="TEXT", help="The body, as it is.")
    ] = None,
    body: Annotated[
        str | None, typer.Option("--body", metavar="FILE", help="The body; - is stdin.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME:VALUE", help="One more header; may be repeated."),
    ] = None,
    query: Annotated[
        str, typer.Option("--query", metavar="TEXT", help="What stands behind the `?`.")
    ] = "",
    wait: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--wait", help="Wait for the end of the run, and show the result.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.001, help="Stop waiting then (60).")
    ] = 60.0,
) -> None:
    """Send a delivery to the gateway, signed on the server with the secret of the listener.

    It takes the way of every delivery and starts a run. Ends with 0 when it was taken; a refusal
    ends as its status does: 4 for 401 and 403, 7 for 400 and 413, 11 for 429 and 503. With --wait
    it ends as the run does.
    """
    out: Output = ctx.obj
    asked = _delivery(data, body, headers or [], query)
    _send(out, subscription, asked, timeout if wait else None)


def _delivery(data: str | None, file: str | None, headers: list[str], query: str) -> "TestDelivery":
    """What is to be sent; a body that is no text goes as base64."""
    import base64

    from noetl.api.ingress import TestDelivery

    given = dict(_pair(word) for word in headers)
    raw = _bytes(data, file)
    try:
        return TestDelivery(body=raw.decode(), headers=given, query=query.removeprefix("?"))
    except UnicodeDecodeError:
        text = base64.b64encode(raw).decode("ascii")
        return TestDelivery(body=text, is_base64=True, headers=given, query=query.removeprefix("?"))


def _bytes(data: str | None, file: str | None) -> bytes:
    from noetl.cli.files import read

    if (data is None) == (file is None):
        message = "give the body as `--data` or as `--body`: exactly one of the two"
        raise CommandFailed("usage", message, hint="""write `--data '{"id": 1}'`, or a file""")
    if data is not None:
        return data.encode("utf-8", "surrogateescape")
    found = read(file or "", most=_MOST_BYTES + 1)
    if len(found.data) > _MOST_BYTES:
        raise CommandFailed("usage", f"`{found.name}` is too large", hint="at most 10 MiB")
    return found.data


def _pair(word: str) -> tuple[str, str]:
    name, colon, value = word.partition(":")
    if not colon or not name.strip():
        message = f"`--header {word}` is not a header"
        raise CommandFailed("usage", message, hint="write `--header 'x-kind: order'`")
    return name.strip(), value.strip()


def _send(out: "Output", word: str, body: "TestDelivery", timeout_s: float | None) -> None:
    from noetl.api.plain import plain
    from noetl.cli.deliveries import refused
    from noetl.cli.references import subscription_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> None:
        sent = plain(await client.test_delivery(await subscription_of(client, word), body))
        status = int(sent["status"])
        if status >= _REFUSED:
            of = f" (delivery {sent['delivery_id']})" if sent.get("delivery_id") else ""
            raise refused(sent, f"the gateway refused the delivery with {status}{of}", status)
        if timeout_s is None:
            _show(out, sent)
            return
        raise typer.Exit(await _awaited(out, client, sent, timeout_s))

    ask(out, work)


async def _awaited(out: "Output", client: "Client", sent: dict[str, Any], timeout_s: float) -> int:
    """Wait for the end of the run and show it; the exit code."""
    import asyncio

    from noetl.cli.awaited import ended, show_run

    execution_id = sent.get("execution_id")
    if not execution_id:
        message = f"there is no run to wait for: the delivery was {sent.get('outcome', 'answered')}"
        hint = "`noetl subscriptions spool` shows what waits"
        raise CommandFailed("wait_timeout", message, hint=hint, details=sent)
    out.note(f"{sent['status']} {sent.get('outcome', '')} execution/{execution_id}")
    try:
        async with asyncio.timeout(timeout_s):
            run = await ended(out, client, execution_id, catalog_id="", is_followed=False)
    except TimeoutError:
        message = f"not done within {timeout_s:g} s; execution {execution_id} goes on"
        raise CommandFailed("wait_timeout", message, details=sent) from None
    show_run(out, run)
    return EXIT_OF_STATUS[run.status]


def _show(out: "Output", sent: dict[str, Any]) -> None:
    from noetl.cli.listing import show_one

    execution_id, delivery_id = sent.get("execution_id"), sent.get("delivery_id")
    show_one(out, sent, f"execution/{execution_id}" if execution_id else f"delivery/{delivery_id}")


_A = "subscriptions/orders"
TEST = remote_spec(
    send,
    f"noetl subscriptions test {_A} --data '{{\"order\": 7}}'",
    f"noetl subscriptions test {_A} --data '{{\"order\": 8}}' --header 'x-order-kind: gift' --wait",
    f"printf '{{\"order\": 9}}' | noetl subscriptions test {_A} --body - -o json",
    takes="subscriptions",
    is_mutating=True,
)
