"""`noetl executions why`, `replay` and `diff`: what a run waits for, was, and did otherwise."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.api.client import Client
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_Execution = Annotated[str, typer.Argument(metavar="ID", help="An id, @latest, or @latest:PATH.")]


def why(ctx: typer.Context, execution: _Execution) -> None:
    """Say why a run is not moving, and what helps; of one that has ended, why it did."""
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        return await client.why(await execution_of(client, execution))

    found = ask(out, work)
    if out.is_structured:
        out.document(found)
    elif out.format == "name":
        out.line(f"execution/{found['execution_id']}")
    else:
        out.write("".join(f"{line}\n" for line in told(found)))


def told(found: dict[str, Any]) -> "Iterator[str]":
    """The answer for a person: the summary, then a sentence per reason and what helps."""
    from noetl.cli.text import visible

    yield visible(f"{found['status']}: {found['summary']}")
    for reason in found["reasons"]:
        step = f"step {reason['step']}: " if reason.get("step") else ""
        since = f" (since {reason['since']})" if reason.get("since") else ""
        detail = reason.get("detail") or reason["code"]
        yield visible(f"- {step}{detail}{since} [{reason['code']}]")
        if reason.get("hint"):
            yield visible(f"  {reason['hint']}")


def replay(
    ctx: typer.Context,
    execution: _Execution,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="After this event; the last.")
    ] = None,
) -> None:
    """Show the state of a run as it was after an event; nothing is changed."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        name = await execution_of(client, execution)
        filters = {} if at is None else {"as_of_position": at}
        return plain(await client.replay(name, **filters))

    found = ask(out, work)
    show_one(out, found, f"execution/{found['execution_id']}")


def diff(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="ID1", help="A run.")],
    second: Annotated[str, typer.Argument(metavar="ID2", help="The run it is compared with.")],
    exit_code: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--exit-code", help="End with 7 when they differ.")
    ] = False,
) -> None:
    """Compare two runs step by step: status, time, input and result."""
    from noetl.cli.comparing import compared, read_run, rows
    from noetl.cli.failures import CommandFailed
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask
    from noetl.cli.text import columns, visible

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        names = [await execution_of(client, word) for word in (first, second)]
        return compared(*[await read_run(client, name) for name in names])

    found = ask(out, work)
    if out.is_structured:
        out.document(found)
    elif out.format == "name":
        differing = [one["step"] for one in found["steps"] if one["differs"]]
        out.write("".join(f"step/{visible(name)}\n" for name in differing))
    else:
        out.write(columns([tuple(map(visible, row)) for row in rows(found)], out.width))
    if exit_code and not found["is_same"]:
        raise CommandFailed("runs_differ", "the runs differ", details={"first": first})


_spec = partial(remote_spec, takes="executions")

WHY = _spec(why, "noetl executions why @latest", "noetl executions why @latest -o json")
REPLAY = _spec(
    replay,
    "noetl executions replay @latest --at 2",
    "noetl executions replay @latest:examples/hello -o json",
)
DIFF = _spec(
    diff,
    "noetl executions diff @latest @latest:examples/hello",
    "noetl executions diff @latest @latest -o json --exit-code",
)
