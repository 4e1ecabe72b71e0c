"""`noetl login`: begins a session at a gateway, and keeps it for the commands after it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.api.sign_in import SignIn, SignInAnswer
    from noetl.api.sign_in_client import SignInClient
    from noetl.cli.doors import Door
    from noetl.cli.output import Output


def login(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    account: Annotated[
        str | None, typer.Argument(metavar="ACCOUNT", help="Name or e-mail, with a password.")
    ] = None,
    browser: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--browser", help="At a provider, in the browser of this machine.")
    ] = False,
    device: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--device", help="At a provider, in a browser of another machine.")
    ] = False,
    password: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--password", help="Ask for a password; no terminal: a line of stdin.")
    ] = False,
    local: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--local", help="The same, past a playbook that signs people in.")
    ] = False,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Which provider, of several.")
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="TENANT", help="Of an account with a password.")
    ] = "default",
    hours: Annotated[
        int, typer.Option("--hours", metavar="N", min=1, max=24, help="How long it lasts (8).")
    ] = 8,
) -> None:
    """Sign in at the gateway; the commands after it are yours, until `noetl logout`.

    Without a choice it is the browser where the gateway has a provider and somebody sits at the
    terminal, else a password. The gateway is the one of the context; `--server-url` names another,
    which becomes a context of its own. The session is kept in the keyring of this machine, or in a
    file for you alone, and is never shown.
    """
    import asyncio

    from noetl.cli.doors import at_door, door_of
    from noetl.cli.failures import failure_of
    from noetl.errors import NoetlError

    out: Output = ctx.obj
    ways = {"browser": browser, "device": device, "password": password, "local": local}
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        words = " and ".join(f"`--{name}`" for name in chosen)
        raise CommandFailed("usage", f"{words} exclude each other", hint="leave one of them out")
    door = door_of(out)
    asked = _Asked(
        out=out, way="".join(chosen), account=account, provider=provider,
        tenant=tenant, hours=hours,
    )  # fmt: skip

    async def work() -> "SignInAnswer":
        async with at_door(out, door.url) as client:
            return await _signed_in(asked, client)

    try:
        made = asyncio.run(work())
    except NoetlError as fault:
        raise failure_of(fault) from fault
    door.keep(made.session_token)
    _tell(out, door, made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the command line says about how to sign in."""

    out: "Output"
    way: str
    account: str | None
    provider: str | None
    tenant: str
    hours: int


async def _signed_in(asked: _Asked, client: "SignInClient") -> "SignInAnswer":
    """Sign in the way that was chosen, or else the one that fits."""
    way = asked.way
    providers = () if way in {"password", "local"} else (await client.contract()).providers
    if not way:
        is_browser = asked.provider or (providers and _is_terminal(asked.out))
        way = "browser" if is_browser else "password"
    if way in {"password", "local"}:
        return await client.sign_in(_by_password(asked, is_local=way == "local"))
    from noetl.cli import providing

    sign_in = providing.by_browser if way == "browser" else providing.by_device
    return await sign_in(asked.out, client, _chosen(providers, asked.provider), asked.hours)


def _by_password(asked: _Asked, *, is_local: bool) -> "SignIn":
    from noetl.api.sign_in import SignIn
    from noetl.cli.people import typed_password

    account = asked.account
    if account is None:
        if not _is_terminal(asked.out):
            hint = "noetl login ACCOUNT --password"
            raise CommandFailed("usage", "whose password it is has to be said", hint=hint)
        account = typer.prompt("Account", err=True)
    return SignIn(
        username=account,
        password=typed_password(asked.out, "noetl login"),
        tenant=asked.tenant,
        session_duration_hours=asked.hours,
        local=is_local,
    )


def _chosen(providers: tuple[dict[str, str], ...], name: str | None) -> dict[str, str]:
    """The provider that is meant."""
    known = {one["name"]: one for one in providers}
    if not known:
        hint = "sign in with `--password`"
        raise CommandFailed("usage", "this gateway has no sign-in provider", hint=hint)
    if name is None:
        if len(known) == 1:
            return next(iter(known.values()))
        hint = f"--provider {' | '.join(known)}"
        raise CommandFailed("usage", "this gateway has several sign-in providers", hint=hint)
    if name not in known:
        hint = nearest(name, tuple(known))
        raise CommandFailed("usage", f"there is no provider `{name}`", hint=hint)
    return known[name]


def _is_terminal(out: "Output") -> bool:
    import sys

    return sys.stdin is not None and sys.stdin.isatty() and out.may_ask


def _tell(out: "Output", door: "Door", made: "SignInAnswer") -> None:
    """Who is signed in, where and until when; never the session itself."""
    user = made.user
    account = user.email or user.display_name or user.user_id
    if out.is_structured:
        out.document({
            "user_id": user.user_id, "email": user.email, "display_name": user.display_name,
            "roles": list(user.roles), "expires_at": made.expires_at, "gateway_url": door.url,
            "context": door.name,
        })  # fmt: skip
    elif out.format == "name":
        out.line(f"user/{user.user_id}")
    else:
        out.note(f"signed in at {door.url} as {account} until {made.expires_at}")
        if door.is_new:
            out.note(f"the context `{door.name}` is the current one now")
    settings = out.settings
    if settings.token or settings.token_file or settings.session_token:
        out.note("warning: NOETL_TOKEN or NOETL_SESSION_TOKEN is set, and wins over this session")


COMMAND = remote_spec(
    login,
    "echo 'a long enough secret' | noetl login ada --password || echo \"no gateway\"",
    'noetl login --device -o json || echo "no provider"',
)
