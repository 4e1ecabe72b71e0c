"""`noetl wallet`: the key that wraps the keys of all secrets."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.output import Output

_SHOWING = ("table", "json", "yaml", "jsonl")


def status(ctx: typer.Context) -> None:
    """Show which key wraps, and how many records each version of it has wrapped."""
    from noetl.api.plain import plain
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    _as_platform(out)
    found = plain(ask(out, lambda client: client.key_status()))
    if out.is_structured:
        out.document(found)
        return
    from noetl.cli.text import columns

    rows = [("TABLE", "KEY", "VERSION", "RECORDS", "STATE")]
    for table, versions in found["tables"].items():
        for one in versions:
            state = "current" if one["is_current"] else "older"
            key = f"{one['provider']}/{one['key_id']}"
            rows.append((table, key, one["version"], str(one["rows"]), state))
    out.line(f"key: {found['provider']}/{found['key_id']} version {found['version']}")
    if len(rows) > 1:
        out.write(columns(rows, out.width))
    for table, count in found["unreadable"].items():
        if count:
            out.shout(f"{table}: {count} values are no records")


def rotate(
    ctx: typer.Context,
    size: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, max=1000, help="Records at a time (100).")
    ] = 100,
) -> None:
    """Wrap every record with the current key; values stay as they are, and readable throughout.

    Begins where an earlier one ended. Ends with 1 when records could not be wrapped.
    """
    from noetl.cli.asking import guard
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    _as_platform(out)
    guard(out, "wrap every record with the current key?")

    async def work(client: "Client") -> dict[str, Any]:
        return await _rotated(client, size)

    found = ask(out, work)
    _show(out, found)
    if any(sum(table["failed"].values()) for table in found["tables"].values()):
        raise typer.Exit(1)


def _as_platform(out: "Output") -> None:
    """The key is the platform's own: the stack that runs here lends its bearer."""
    from dataclasses import replace
    from pathlib import Path

    from noetl.cli.remote import target_url
    from noetl.cli.stacks import running_stack
    from noetl.cli.where import Where

    where, stack = out.where or Where(), running_stack(out.settings.home)
    is_given = where.token_file or where.session_token or out.settings.token
    if stack is not None and not is_given and target_url(out) == stack.url:
        file = Path(stack.home) / "secrets" / "internal.token"
        out.where = replace(where, token_file=str(file))


async def _rotated(client: "Client", size: int) -> dict[str, Any]:
    from noetl.api.credentials import RotateKek
    from noetl.api.plain import plain

    return plain(await client.rotate_kek(RotateKek(batch_size=size)))


def _show(out: "Output", found: dict[str, Any]) -> None:
    if out.is_structured:
        out.document(found)
        return
    from noetl.cli.text import columns

    rows = [("TABLE", "LOOKED AT", "WRAPPED", "LEFT AS THEY WERE", "FAILED")]
    for name, one in found["tables"].items():
        counts = (one["processed"], one["rewrapped"], one["skipped"])
        failed = ", ".join(f"{count} {word}" for word, count in one["failed"].items() if count)
        rows.append((name, *map(str, counts), failed or "-"))
    out.write(columns(rows, out.width))
    if not found["is_done"]:
        out.note("there is more; run it again")


_spec = partial(remote_spec, outputs=_SHOWING)

COMMAND = Group(
    about="Show and rotate the key that wraps the keys of all secrets.",
    commands={
        "status": _spec(status, "noetl wallet status", "noetl wallet status -o json"),
        "rotate-kek": _spec(
            rotate,
            "noetl wallet rotate-kek --yes",
            "noetl wallet rotate-kek --yes -o json",
            is_mutating=True,
        ),
    },
    examples=("noetl wallet status", "noetl wallet rotate-kek --yes"),
)
