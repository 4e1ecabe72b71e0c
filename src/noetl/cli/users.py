"""`noetl users`: accounts of persons and services."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.paging import Everything, Limit
from noetl.cli.people import Password
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("USER", "NAME", "KIND", "STATE", "ROLES", "CREATED", "EMAIL")
_KINDS = ("user", "service")
_User = Annotated[str, typer.Argument(metavar="USER", help="The name of an account, or its id.")]


def list_users(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="|".join(_KINDS), help="Persons or services.")
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="Only those who have it.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="In the name or the e-mail.")
    ] = None,
    inactive: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--inactive", help="Only those that are shut out.")
    ] = False,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - as above
) -> None:
    """List accounts, the oldest first."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import given, show_pages

    asked = given(kind=_kind(kind), role=role, q=text, active="false" if inactive else None)
    look = Look(head=_HEAD, row=_row, name=_name, nothing="no account was found")
    show_pages(
        ctx.obj,
        lambda client, more: client.users(**asked, **more),
        look,
        None if everything else limit,
    )


def get_user(ctx: typer.Context, user: _User) -> None:
    """Show one account."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.people import user_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = plain(ask(out, lambda client: user_of(client, user)))
    show_one(out, found, _name(found))


def create_user(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the account.")],
    kind: Annotated[
        str, typer.Option("--kind", metavar="|".join(_KINDS), help="A person, or a service.")
    ] = "user",
    email: Annotated[
        str | None, typer.Option("--email", metavar="ADDRESS", help="Of a person.")
    ] = None,
    display_name: Annotated[
        str | None, typer.Option("--display-name", metavar="TEXT", help="As people call it.")
    ] = None,
    roles: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="What it may do.")
    ] = None,
    password: Password = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """Make an account; with a password, a person signs in here."""
    from noetl.api.identity import NewAccount
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.people import password_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    wanted: Any = _kind(kind)
    body = NewAccount(
        subject=name, kind=wanted, email=email, display_name=display_name,
        password=password_of(out, password), roles=tuple(roles or ()),
    )  # fmt: skip
    found = plain(ask(out, lambda client: client.add_user(body)))
    show_one(out, found, _name(found))


def update_user(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    user: _User,
    email: Annotated[
        str | None, typer.Option("--email", metavar="ADDRESS", help="Another; '' takes it away.")
    ] = None,
    display_name: Annotated[
        str | None,
        typer.Option("--display-name", metavar="TEXT", help="Another; '' takes it away."),
    ] = None,
    password: Password = False,  # noqa: FBT002 - typer reads flags from defaults
    no_password: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--no-password", help="Take the password away.")
    ] = False,
    activate: Annotated[bool, typer.Option("--activate", help="Let it in again.")] = False,  # noqa: FBT002 - as above
    deactivate: Annotated[bool, typer.Option("--deactivate", help="Shut it out.")] = False,  # noqa: FBT002 - as above
) -> None:
    """Change an account; who is shut out, or has another password, is signed out."""
    from noetl.api.identity import AccountChange
    from noetl.cli.people import password_of

    out: Output = ctx.obj
    for pair in (("--password", password, no_password), ("--activate", activate, deactivate)):
        if pair[1] and pair[2]:
            message = f"`{pair[0]}` and its opposite exclude each other"
            raise CommandFailed("usage", message, hint="leave one of them out")
    changes: dict[str, Any] = {}
    if email is not None:
        changes["email"] = email or None
    if display_name is not None:
        changes["display_name"] = display_name or None
    if password or no_password:
        changes["password"] = password_of(out, password)
    if activate or deactivate:
        changes["active"] = activate
    if not changes:
        hint = "run `noetl users update --help`"
        raise CommandFailed("usage", "nothing is to be changed", hint=hint)
    body = AccountChange(**changes)
    _change(out, user, lambda client, account_id: client.change_user(account_id, body))


def delete_user(ctx: typer.Context, user: _User) -> None:
    """Forget an account with its tokens and sessions."""
    from noetl.api.plain import plain
    from noetl.cli.asking import guard
    from noetl.cli.listing import show_one
    from noetl.cli.people import user_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    guard(out, f"delete the account {user}?")

    async def work(client: "Client") -> dict[str, Any]:
        account = await user_of(client, user)
        await client.remove_user(account.account_id)
        return plain(account)

    found = ask(out, work)
    if out.format == "table":
        out.note(f"{found['subject']} is deleted")
    else:
        show_one(out, found, _name(found))


def give_roles(
    ctx: typer.Context,
    user: _User,
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="ROLE", help="All roles that it is to have.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="No role at all.")] = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """Give an account exactly these roles; who has fewer than before is signed out."""
    wanted = roles or []
    if bool(wanted) == none:
        message = "roles are named, or `--none`"
        raise CommandFailed("usage", message, hint="`noetl roles list` shows those there are")
    _change(ctx.obj, user, lambda client, account_id: client.give_roles(account_id, wanted))


def _change(out: "Output", word: str, change: Any) -> None:  # noqa: ANN401 - a method of the client
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.people import user_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        return plain(await change(client, (await user_of(client, word)).account_id))

    found = ask(out, work)
    show_one(out, found, _name(found))


def _kind(word: str | None) -> str | None:
    if word not in {None, *_KINDS}:
        hint = nearest(word or "", _KINDS)
        raise CommandFailed("usage", f"`--kind {word}` is not known", hint=hint)
    return word


def _name(item: dict[str, Any]) -> str:
    return f"user/{item['account_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    state = "active" if item["active"] else "inactive"
    roles = ", ".join(item["roles"]) or "-"
    facts = (item["account_id"], item["subject"], item["kind"], state, roles)
    return (*facts, At(item["created_at"]), item["email"] or "-")


_spec = partial(remote_spec, is_mutating=True)

COMMAND = Group(
    about="List, make and change accounts of persons and services: named by name or id.",
    commands={
        "list": _spec(
            list_users,
            "noetl users list --role developer",
            "noetl users list --kind service -o json",
            is_mutating=False,
        ),
        "get": _spec(
            get_user, "noetl users get ada", "noetl users get ada -o json", is_mutating=False
        ),
        "create": _spec(
            create_user,
            "noetl users create grace --email grace@example.org --role developer",
            "echo 'a long enough secret' | noetl users create linus --password --role viewer",
            "noetl users create deployer --kind service --role developer -o json",
        ),
        "update": _spec(
            update_user,
            "noetl users update ada --email ada@example.org",
            "noetl users update ada --deactivate -o json",
        ),
        "roles": _spec(
            give_roles,
            "noetl users roles ada developer viewer",
            "noetl users roles ada --none -o json",
        ),
        "delete": _spec(
            delete_user, "noetl users delete ada --yes", "noetl users delete ada -y -o name"
        ),
    },
    examples=("noetl users list", "noetl users get ada -o json"),
)
