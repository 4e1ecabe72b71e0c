"""`noetl up`: the embedded stack, in the foreground or in the background."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed, failure_of

if TYPE_CHECKING:
    from noetl.cli.output import Output, Style
    from noetl.local.embedded.record import Stack
    from noetl.local.embedded.wish import Wish

_STYLES: "dict[str, Style]" = {
    "up": "bold",
    "server": "cyan",
    "gateway": "cyan",
    "postgres": "dim",
    "nats": "dim",
}
_AWAITED_S = 30.0
_LOOK_AGAIN_S = 0.1


def up(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder of the stack (.noetl).")
    ] = None,
    port: Annotated[
        str | None,
        typer.Option("--port", metavar="N|auto", help="Port of the gateway (8090)."),
    ] = None,
    server_port: Annotated[
        str | None,
        typer.Option(
            "--server-port", metavar="N|auto", help="Port of the server (8082; auto with --port)."
        ),
    ] = None,
    pools: Annotated[
        str | None,
        typer.Option(
            "--pools", metavar="NAME=N,..", help="Worker pools and slots (shared=8,system=2)."
        ),
    ] = None,
    detach: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--detach", help="Return when it is ready; it runs on.")
    ] = False,
    reset: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--reset", help="Delete all data of the folder first.")
    ] = False,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="A PostgreSQL that runs already."),
    ] = None,
    nats_url: Annotated[
        str | None, typer.Option("--nats-url", metavar="URL", help="A NATS that runs already.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ADDRESS", help="Address to bind (127.0.0.1)."),
    ] = None,
    insecure_bind: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--insecure-bind", help="Bind another address without TLS.")
    ] = False,
    no_gateway: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--no-gateway", help="Without the gateway: the server alone.")
    ] = False,
    no_ui: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--no-ui", help="A gateway without web pages.")
    ] = False,
    open_page: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--open", help="Open the page in a browser, signed in.")
    ] = False,
) -> None:
    """Start the embedded stack: PostgreSQL, NATS, a server, a gateway and worker pools.

    Everything lies under one folder; nothing has to be installed. It runs until Ctrl-C, or in the
    background with --detach until `noetl down`. It prints one address: a browser that opens it is
    signed in as admin, once, within 15 minutes. Run twice, it shows the stack that runs, and
    gives another such address.
    """
    from noetl.cli.asking import confirm
    from noetl.errors import NoetlError
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.wish import POOLS, Wish
    from noetl.settings import StackSettings, variable
    from noetl.settings.values import pools as slots_of

    out: Output = ctx.obj
    try:
        if open_page and (no_gateway or no_ui):
            raise CommandFailed("usage", "there would be no page to open", hint="leave one out")
        settings = StackSettings.read(
            home=home,
            port=server_port or (port if port == "auto" and not variable("NOETL_PORT") else None),
            gateway_port=port,
            database_url=database_url,
            nats_url=nats_url,
            host=listen,
        )
        wish = Wish(
            settings=settings,
            pools=POOLS if pools is None else slots_of(pools),
            is_insecure=insecure_bind,
            has_gateway=not no_gateway,
            has_pages=not no_ui,
        )
        wish.check()
        welcome = _Welcome(out, is_opened=open_page)
        running = _running(Home(settings.home))
        if running is None:
            if reset:
                confirm(out, f"delete all data under {settings.home.absolute()}?")
            running = _start(welcome, wish, is_detached=detach, is_reset=reset)
        if running is not None:
            out.note(f"a stack runs already in {running.home}")
            welcome.again(running)
    except ValueError as fault:
        raise CommandFailed("usage", f"`--pools` has to be {fault}") from fault
    except NoetlError as fault:
        _say_last_words(out, fault)
        raise failure_of(fault) from fault


def _running(home: Any, awaited_s: float = 0.0) -> "Stack | None":  # noqa: ANN401 - imported when it is needed
    """The stack that runs here; one that starts or ends just now is awaited.

    With `awaited_s` one is waited for that does not even say yet that it starts.
    """
    from noetl.local.embedded.identity import await_end, identity
    from noetl.local.embedded.record import READY, read

    for _ in range(int(_AWAITED_S / _LOOK_AGAIN_S)):
        stack = read(home.record)
        is_alive = stack is not None and stack.supervisor.is_alive
        if is_alive and stack is not None and stack.state == READY:
            return stack
        if not is_alive and awaited_s <= 0:
            return None
        awaited_s -= _LOOK_AGAIN_S
        await_end(filter(None, [identity(os.getpid())]), _LOOK_AGAIN_S)
    return None


def _start(
    welcome: "_Welcome", wish: "Wish", *, is_detached: bool, is_reset: bool
) -> "Stack | None":
    """Run a stack; the answer is the one of somebody else who was faster."""
    from noetl.errors import NoetlError
    from noetl.local.embedded.home import Home

    try:
        (_in_background if is_detached else _in_foreground)(welcome, wish, is_reset=is_reset)
    except NoetlError as fault:
        running = None
        if fault.code == "stack_running":
            running = _running(Home(wish.settings.home), awaited_s=_AWAITED_S)
        if running is None:
            raise
        return running
    return None


def _in_background(welcome: "_Welcome", wish: "Wish", *, is_reset: bool) -> None:
    from noetl.local.embedded.background import start

    welcome.first(start(wish, is_reset=is_reset))


def _in_foreground(welcome: "_Welcome", wish: "Wish", *, is_reset: bool) -> None:
    import asyncio

    from noetl.local.embedded.up import up as run_stack

    out = welcome.out

    def show(part: str, line: str) -> None:
        if not out.is_structured:  # there the files alone hold the lines
            out.note(f"{out.styled(f'[{part}]', _STYLES.get(part, 'yellow'), to='stderr')} {line}")

    def ready(stack: "Stack", login_url: str) -> None:
        welcome.first(stack.as_json() | {"login_url": login_url})

    asyncio.run(run_stack(wish, show, ready, is_reset=is_reset))
    out.note("the stack has ended")


@dataclass(frozen=True, slots=True)
class _Welcome:
    """Says where the stack is."""

    out: "Output"
    is_opened: bool

    def first(self, stack: dict[str, Any]) -> None:
        """The stack is ready: let the command line find it, and say where it is."""
        from noetl.cli import contexts

        known = contexts.read_contexts().entries
        former = known.get(contexts.EMBEDDED)
        contexts.write_context(
            contexts.EMBEDDED,
            stack["url"],
            stack["token_file"],
            gateway_url=stack["gateway_url"],
            make_current=former is None,
        )
        if former is not None:  # a session of the stack before ends with it
            contexts.forget_session(former)
        self._show(stack)

    def again(self, stack: "Stack") -> None:
        """The stack runs already: another way in."""
        import asyncio

        from noetl.local.embedded.sign_in import login_url

        self._show(stack.as_json() | {"login_url": asyncio.run(login_url(stack))})

    def _show(self, stack: dict[str, Any]) -> None:
        page = stack["login_url"] or stack["public_url"] or stack["gateway_url"]
        if self.out.is_structured:
            self.out.document(stack)
        else:
            self.out.line(page or f"{stack['url']}/api/health")
        if self.is_opened and page:
            import webbrowser

            if not webbrowser.open(page):
                self.out.note("there is no browser here; open the address elsewhere")


def _say_last_words(out: "Output", fault: BaseException) -> None:
    for line in getattr(fault, "lines", ()):
        if not out.is_structured:
            out.detail(f"  {line}\n")


COMMAND = Spec(
    run=up,
    outputs=("table", "json", "yaml"),
    examples=(
        "noetl up --detach --port auto && noetl down",
        "noetl up --detach --port auto --pools shared=4 -o json && noetl down --wipe --yes",
    ),
    takes="nothing",
)
