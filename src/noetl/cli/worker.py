"""`noetl worker`: one worker process in the foreground."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import failure_of

if TYPE_CHECKING:
    from typing import NoReturn

    from noetl.cli.output import Output
    from noetl.settings import WorkerSettings


def worker(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="NAME", help="Pool that it joins; required.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="MODE", help="Command, watcher or subscription."),
    ] = None,
    subscription: Annotated[
        list[str] | None,
        typer.Option(
            "--subscription", metavar="PATH", help="What it listens for; may be repeated."
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="Namespace of container jobs (noetl)."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", metavar="N", help="Commands at once (16).")
    ] = None,
    worker_id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Its own name, kept in its folder.")
    ] = None,
    server_url: Annotated[
        str | None, typer.Option("--server-url", metavar="URL", help="Where the API is.")
    ] = None,
    nats_url: Annotated[
        str | None, typer.Option("--nats-url", metavar="URL", help="The NATS bus.")
    ] = None,
    metrics_bind: Annotated[
        str | None,
        typer.Option("--metrics-bind", metavar="ADDRESS:N", help="Address of metrics and health."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="Least level (info).")
    ] = None,
    print_settings: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--print-settings", help="Show the settings in force, and end.")
    ] = False,
) -> None:
    """Run one worker of a pool in the foreground, until SIGTERM or Ctrl-C.

    With `--mode watcher` it belongs to no pool: it tells the server how container jobs of a
    namespace end on the Kubernetes cluster that it runs in, with NOETL_INTERNAL_API_TOKEN.
    With `--mode subscription --subscription PATH` it listens for messages and starts a run for
    each, as the Subscription of that path says; a missing credential ends it with 78.

    Every option is a setting; the others are variables and keys of noetl.toml, its bearer
    NOETL_WORKER_TOKEN among them. What is not told is taken from the embedded stack that runs
    here, so that this is one more worker of it.
    """
    from noetl.cli.stacks import show_settings, told_by_stack
    from noetl.errors import NoetlError
    from noetl.settings import WorkerSettings, variable

    out: Output = ctx.obj
    if subscription or (mode or variable("WORKER_MODE")) == "subscription":
        _listen(
            out,
            tuple(subscription or ()),
            is_shown=print_settings,
            mode=mode,
            runtime_id=worker_id,
            server_url=server_url,
            nats_url=nats_url,
            metrics_bind=metrics_bind,
            log_level=log_level,
        )
    try:
        settings = WorkerSettings.read(
            fallback=told_by_stack(out.settings.home, pool or ""),
            pool=pool,
            mode=mode,
            namespaces=namespace,
            slots=slots,
            worker_id=worker_id,
            server_url=server_url,
            nats_url=nats_url,
            metrics_bind=metrics_bind,
            log_level=log_level,
        )
        if print_settings:
            show_settings(out, settings.shown())
            return
        code = _worked(settings)
    except NoetlError as fault:
        raise failure_of(fault) from fault
    raise typer.Exit(code)


def _listen(
    out: "Output",
    paths: tuple[str, ...],
    *,
    is_shown: bool,
    **flags: Any,  # noqa: ANN401 - options by the names of fields
) -> "NoReturn":
    """Run the listener of some subscriptions."""
    from noetl.cli.stacks import show_settings, told_by_stack
    from noetl.errors import NoetlError
    from noetl.settings import SubscriptionSettings

    try:
        told = told_by_stack(out.settings.home, "")
        settings = SubscriptionSettings.read(fallback=told, paths=paths, **flags)
        if is_shown:
            show_settings(out, settings.shown() | {"paths": settings.paths})
            raise typer.Exit
        from noetl.subscription.process import listen

        code = listen(settings)
    except NoetlError as fault:
        raise failure_of(fault) from fault
    raise typer.Exit(code)


def _worked(settings: "WorkerSettings") -> int:
    """Run the worker that is meant; the exit code of the process."""
    if settings.mode == "watcher":
        from noetl.worker.watcher.process import watch

        return watch(settings)
    from noetl.worker.process import work

    return work(settings)


COMMAND = Spec(
    run=worker,
    outputs=("table", "json", "yaml"),
    examples=(
        "noetl worker --pool shared --print-settings",
        "noetl worker --pool shared --slots 4 --print-settings -o json",
        "noetl worker --mode subscription --subscription plant/readings --print-settings",
    ),
    takes="nothing",
)
