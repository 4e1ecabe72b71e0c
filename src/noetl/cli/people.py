"""Accounts by their names, and passwords that never stand in an option."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.identity import Account
    from noetl.cli.output import Output

Password = Annotated[
    bool, typer.Option("--password", help="Ask for a password; no terminal: a line of stdin.")
]
_USER = "user/"
_NOT_THERE = (404, 422)


async def user_of(client: "Client", word: str) -> "Account":
    """The account that a word names: its id, `user/<id>`, or its name."""
    from noetl.api.problems import Refused
    from noetl.cli.text import nearest

    name = word.removeprefix(_USER)
    if name.isascii() and name.isdigit():
        try:
            return await client.user(name)
        except Refused as fault:
            if fault.problem.status not in _NOT_THERE:
                raise
    cursor: dict[str, str] = {}
    near: list[str] = []
    while True:
        page = await client.users(q=name, limit=200, **cursor)
        for account in page.items:
            if account.subject == name:
                return account
        near += [account.subject for account in page.items]
        if page.next_cursor is None:
            break
        cursor = {"cursor": page.next_cursor}
    hint = nearest(name, tuple(near)) if near else "`noetl users list` shows those there are"
    raise CommandFailed("not_found", f"there is no account `{name}`", hint=hint)


def password_of(out: "Output", is_wanted: bool) -> str | None:  # noqa: FBT001 - a flag of the command line
    """A new password: typed twice at a terminal, else a line of standard input."""
    return typed_password(out, "noetl users", is_new=True) if is_wanted else None


def typed_password(out: "Output", command: str, *, is_new: bool = False) -> str:
    """A password: typed at a terminal, else a line of standard input."""
    import sys

    if sys.stdin is not None and sys.stdin.isatty() and out.may_ask:
        found: str = typer.prompt(
            "Password",
            hide_input=True,
            confirmation_prompt="Once more" if is_new else False,
            err=True,
        )
    else:
        found = "" if sys.stdin is None else sys.stdin.readline().rstrip("\r\n")
    if not found:
        message = "there is no password"
        raise CommandFailed("usage", message, hint=f"type it, or pipe it: `... | {command}`")
    return found
