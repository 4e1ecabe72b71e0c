"""`noetl gateway`: one gateway process in the foreground."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed, failure_of

if TYPE_CHECKING:
    from noetl.cli.output import Output


def gateway(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address to bind (0.0.0.0).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", metavar="N", help="Port (8090).")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Settings: YAML, TOML or JSON.")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option("--public-url", metavar="URL", help="How browsers reach it.")
    ] = None,
    server_url: Annotated[
        str | None, typer.Option("--server-url", metavar="URL", help="Where the API is.")
    ] = None,
    nats_url: Annotated[
        str | None, typer.Option("--nats-url", metavar="URL", help="The NATS bus.")
    ] = None,
    metrics_bind: Annotated[
        str | None, typer.Option("--metrics-bind", metavar="HOST:PORT", help="Where metrics are.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="Least level (info).")
    ] = None,
    print_settings: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--print-settings", help="Show the settings in force, and end.")
    ] = False,
) -> None:
    """Run one gateway in the foreground, until SIGTERM or Ctrl-C.

    It is the door for people, browsers and agents. Every option is a setting; the others are
    variables, keys of noetl.toml and of the file that `--config` names, NOETL_INTERNAL_API_TOKEN
    among them. What is not told is taken from the embedded stack that runs here, so that this is
    one more gateway of it. A setting that cannot be used ends it with the exit code 78.
    """
    from noetl.cli.stacks import show_settings, told_by_stack
    from noetl.errors import NoetlError
    from noetl.gateway.config import settings_of
    from noetl.settings import BadSetting

    out: Output = ctx.obj
    try:
        settings = settings_of(
            fallback=told_by_stack(out.settings.home, ""),
            host=host,
            port=port,
            config=config,
            public_url=public_url,
            server_url=server_url,
            nats_url=nats_url,
            metrics_bind=metrics_bind,
            log_level=log_level,
        )
        if print_settings:
            show_settings(out, settings.shown())
            return
        from noetl.gateway.process import serve

        code = serve(settings)
    except BadSetting as fault:
        told = fault.message.rstrip(".")
        raise CommandFailed("gateway.bad_setting", told, hint=fault.hint) from fault
    except NoetlError as fault:
        raise failure_of(fault) from fault
    raise typer.Exit(code)


COMMAND = Spec(
    run=gateway,
    outputs=("table", "json", "yaml"),
    examples=(
        "noetl gateway --nats-url nats://127.0.0.1:4222 --print-settings",
        "noetl gateway --host 127.0.0.1 --nats-url nats://127.0.0.1:4222 --print-settings -o json",
    ),
    takes="nothing",
)
