"""`noetl server`: one server process in the foreground."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import failure_of

if TYPE_CHECKING:
    from noetl.cli.output import Output


def server(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address to bind (127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", metavar="N", help="Port of the API (8082).")
    ] = None,
    metrics_port: Annotated[
        str | None, typer.Option("--metrics-port", metavar="N|off", help="Port of the metrics.")
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="The PostgreSQL database."),
    ] = None,
    nats_url: Annotated[
        str | None, typer.Option("--nats-url", metavar="URL", help="The NATS bus.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="Least level (info).")
    ] = None,
    print_settings: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--print-settings", help="Show the settings in force, and end.")
    ] = False,
) -> None:
    """Run one server in the foreground, until SIGTERM or Ctrl-C.

    Every option is a setting; the others are variables and keys of noetl.toml
    (`noetl explain setting.NOETL_DATABASE_URL`). What is not told is taken from the embedded stack
    that runs here, so that this is one more server of it.
    """
    from noetl.cli.stacks import show_settings, told_by_stack
    from noetl.errors import NoetlError
    from noetl.settings import ServerSettings

    out: Output = ctx.obj
    try:
        settings = ServerSettings.read(
            fallback=told_by_stack(out.settings.home),
            host=host,
            port=port,
            metrics_port=metrics_port,
            database_url=database_url,
            nats_url=nats_url,
            log_level=log_level,
        )
        if print_settings:
            show_settings(out, settings.shown())
            return
        from noetl.local.trials.player import TrialPlayer
        from noetl.server.process import serve

        player = TrialPlayer(must_be_shut_in=settings.env == "production")
        code = serve(settings, player)
    except NoetlError as fault:
        raise failure_of(fault) from fault
    raise typer.Exit(code)


COMMAND = Spec(
    run=server,
    outputs=("table", "json", "yaml"),
    examples=(
        "noetl server --database-url postgresql://db/noetl --print-settings",
        "noetl server --port 8083 --database-url postgresql://db/noetl --print-settings -o json",
    ),
    takes="nothing",
)
