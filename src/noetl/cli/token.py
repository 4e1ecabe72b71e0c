"""`noetl token`: tokens of persons and services."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.paging import Everything, Limit

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
# A name alone would lose the text of a token for ever.
_SHOWING = ("table", "json", "yaml", "jsonl")
_HEAD = ("TOKEN", "NAME", "ACCOUNT", "ROLES", "POOL", "EXPIRES", "LAST USED", "STATE")
_Token = Annotated[str, typer.Argument(metavar="TOKEN", help="Its id.")]
_User = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="Of another account: name or id.")
]


def create_token(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    user: _User = None,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="ROLE", help="The only roles that it carries."),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--expires", metavar="DAYS", min=1, max=365, help="It ends then (90)."),
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="The pool of a worker's token.")
    ] = None,
) -> None:
    """Make a token, your own or one of another account; its text is shown this once.

    The token of a service ends after a year, unless --expires says otherwise.
    """
    from noetl.api.identity import NewToken
    from noetl.api.plain import plain
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        account_id = await _account(client, user)
        body = NewToken(
            name=name, account_id=account_id, scopes=tuple(scopes or ()), expires_in_days=days,
            pool=pool,
        )  # fmt: skip
        return plain(await client.add_token(body))

    _show(out, ask(out, work))


def list_tokens(
    ctx: typer.Context,
    user: _User = None,
    revoked: Annotated[bool, typer.Option("--revoked", help="Those too that have ended.")] = False,  # noqa: FBT002 - typer reads flags from defaults
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - as above
) -> None:
    """List your tokens, or those of another account; their texts are shown by nobody."""
    from noetl.cli.listing import Look, show_list
    from noetl.cli.paging import all_pages, given
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> tuple[list[dict[str, Any]], str | None]:
        include = "true" if revoked else None
        asked = given(account_id=await _account(client, user), include_revoked=include)
        return await all_pages(
            client,
            lambda at, more: at.tokens(**asked, **more),
            None if everything else limit,
        )

    items, cursor = ask(out, work)
    look = Look(head=_HEAD, row=_row, name=_name, nothing="there is no token")
    show_list(out, items, look, cursor)


def revoke_token(
    ctx: typer.Context,
    tokens: Annotated[list[str], typer.Argument(metavar="TOKEN", help="Their ids.")],
) -> None:
    """End tokens: whoever uses them is refused within seconds."""
    from noetl.cli.asking import guard
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask
    from noetl.cli.text import counted

    out: Output = ctx.obj
    guard(out, f"revoke {counted(len(tokens), 'token')}?")

    async def work(client: "Client") -> list[dict[str, Any]]:
        names = [_plain(token) for token in tokens]
        for name in names:
            await client.revoke_token(name)
        return [{"token_id": name, "status": "revoked"} for name in names]

    items = ask(out, work)
    if out.is_structured and len(items) == 1:
        out.document(items[0])
        return
    look = Look(
        head=("TOKEN", "STATUS"), row=lambda item: (item["token_id"], item["status"]), name=_name
    )
    show_list(out, items, look)


def rotate_token(ctx: typer.Context, token: _Token) -> None:
    """Give a token another text, which is shown this once; the one before ends."""
    from noetl.api.plain import plain
    from noetl.cli.asking import guard
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    guard(out, f"end the text that token {token} has now?")
    _show(out, plain(ask(out, lambda client: client.rotate_token(_plain(token)))))


async def _account(client: "Client", user: str | None) -> str | None:
    from noetl.cli.people import user_of

    return None if user is None else (await user_of(client, user)).account_id


def _show(out: "Output", made: dict[str, Any]) -> None:
    from noetl.cli.listing import show_one

    show_one(out, made, _name(made))
    out.note("keep its text now: it is not shown again")


def _plain(word: str) -> str:
    return word.removeprefix("token/")


def _name(item: dict[str, Any]) -> str:
    return f"token/{item['token_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    facts = (item["token_id"], item["name"], item["account"], ", ".join(item["roles"]))
    times = (At(item["expires_at"]), At(item["last_used_at"]))
    return *facts, item["pool"] or "-", *times, "revoked" if item["revoked_at"] else "active"


_spec = partial(remote_spec, is_mutating=True)

COMMAND = Group(
    about="Make, list, rotate and revoke tokens; the text of one is shown once.",
    commands={
        "create": _spec(
            create_token,
            "noetl token create laptop --user ada --expires 30",
            "noetl token create ci --user ada --scope viewer -o json",
            outputs=_SHOWING,
        ),
        "list": _spec(
            list_tokens,
            "noetl token list --user ada",
            "noetl token list --user ada --revoked -o json",
            is_mutating=False,
        ),
        "rotate": _spec(
            rotate_token,
            "noetl token list --user ada -o name | xargs -r -n 1 noetl token rotate --yes",
            "noetl token list --user ada -o name | xargs -r -n 1 noetl token rotate -y -o json",
            outputs=_SHOWING,
        ),
        "revoke": _spec(
            revoke_token,
            "noetl token list --user ada -o name | xargs -r noetl token revoke --yes",
            "noetl token list --user ada -o name | xargs -r noetl token revoke -y -o json",
        ),
    },
    examples=(
        "noetl token create ci --user ada -o json",
        "noetl token list --user ada",
    ),
)
