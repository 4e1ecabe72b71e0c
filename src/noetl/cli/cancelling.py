"""`noetl executions cancel`: runs by name, or all that a filter finds."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli import filters
from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.executions import Control
    from noetl.cli.filters import Filter
    from noetl.cli.output import Output

_OPEN = ("PENDING", "RUNNING", "PAUSED")
_HEAD = ("EXECUTION", "STATUS", "CHILDREN", "MESSAGE")


def cancel(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    executions: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids, @latest, or @latest:PATH.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the run's log keeps it.")
    ] = "",
    no_cascade: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--no-cascade", help="Let the runs that it has started go on.")
    ] = False,
    by_filter: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--filter", help="All that the options below find; they are counted.")
    ] = False,
    status: filters.Statuses = None,
    path: filters.Path = None,
    since: filters.Since = None,
    until: filters.Until = None,
    parent: filters.Parent = None,
    labels: filters.Labels = None,
    text: filters.Text = None,
) -> None:
    """Cancel runs, and the runs that they have started.

    A run that is cancelled already is no error; one that has ended otherwise ends with 6.
    Every run that is named is tried. With --filter, those that have not ended are counted, and
    cancelled after a question.
    """
    from noetl.api.executions import Control

    out: Output = ctx.obj
    wanted = filters.Filter(
        status=tuple(status or ()), path=path, since=since, until=until, parent=parent,
        labels=tuple(labels or ()), text=text,
    )  # fmt: skip
    body = Control(reason=reason, cascade=not no_cascade)
    if by_filter:
        if executions:
            message = "`--filter` and ids exclude each other"
            raise CommandFailed("usage", message, hint="leave one of them out")
        if no_cascade:
            message = "`--filter` and `--no-cascade` exclude each other"
            raise CommandFailed("usage", message, hint="leave one of them out")
        _cancel_all(out, wanted, reason)
        return
    if not wanted.is_empty:
        raise CommandFailed("usage", "options that find runs need `--filter`", hint="add it")
    if not executions:
        raise CommandFailed("usage", "no run is named", hint="write its id, or `--filter`")
    _cancel_each(out, executions, body)


def _cancel_each(out: "Output", words: list[str], body: "Control") -> None:
    from noetl.cli.listing import show_list
    from noetl.cli.remote import ask

    async def work(client: "Client") -> "list[tuple[dict[str, Any], Any]]":
        return [await _cancelled(client, word, body) for word in words]

    done = ask(out, work)
    failures = [failure for _, failure in done if failure is not None]
    items = [item for item, _ in done]
    if failures and out.is_structured:
        raise _first(failures, items)
    cancelled = [item for item, failure in done if failure is None]
    if cancelled:
        show_list(out, cancelled, _look())
    for item, failure in done:
        if failure is not None and len(done) > 1:
            out.note(f"{item['execution_id']}: {failure.message}")
    if failures:
        raise _first(failures, items)


async def _cancelled(client: "Client", word: str, body: "Control") -> tuple[dict[str, Any], Any]:
    """What became of one run, or the failure that kept it."""
    from noetl.api.plain import plain
    from noetl.api.problems import Refused
    from noetl.cli.failures import failure_of
    from noetl.cli.references import execution_of

    name = word
    try:
        name = await execution_of(client, word)
        return plain(await client.cancel(name, body)), None
    except Refused as fault:
        failure = failure_of(fault)
        return {"execution_id": name, "error": {"code": fault.code, "message": fault.message}}, (
            failure
        )


def _first(failures: list[Any], items: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - imported when it is needed
    """The first failure stands for all of them."""
    first = failures[0]
    if len(items) > 1:
        first.details = {**first.details, "items": items}
    return first


def _cancel_all(out: "Output", wanted: "Filter", reason: str) -> None:
    """Count what a filter finds, ask, then let the server cancel it."""
    from noetl.cli.asking import guard
    from noetl.cli.listing import show_list
    from noetl.cli.remote import ask
    from noetl.cli.text import counted

    asked, found = ask(out, lambda client: _found(client, wanted))
    if not found["matched"]:
        out.note("no run that has not ended was found")
        if out.is_structured:
            out.items([])
        return
    more = " or more" if found["has_more"] else ""
    guard(out, f"cancel {counted(found['matched'], 'run')}{more}?")
    done = ask(out, lambda client: _bulk(client, asked, reason=reason))
    show_list(out, done["results"], _look())
    if done["has_more"]:
        out.note("there are more; do it again")
    if done["failed"]:
        message = f"{counted(done['failed'], 'run')} of {done['matched']} could not be cancelled"
        raise CommandFailed("bulk_failed", message, hint="the list says why")


async def _found(client: "Client", wanted: "Filter") -> tuple[dict[str, Any], dict[str, Any]]:
    """The filter as the server takes it, and how many open runs it finds now."""
    asked = await wanted.asked(client)
    asked["status"] = tuple(word for word in asked.get("status", _OPEN) if word in _OPEN)
    if not asked["status"]:
        hint = f"of {', '.join(_OPEN)}"
        raise CommandFailed("usage", "a run of that status has ended", hint=hint)
    asked["label"] = tuple(asked.get("label", ()))
    return asked, await _bulk(client, asked, is_dry=True)


async def _bulk(
    client: "Client", asked: dict[str, Any], *, reason: str = "", is_dry: bool = False
) -> dict[str, Any]:
    from noetl.api.plain import plain
    from noetl.api.reading import Bulk, BulkFilter

    body = Bulk(action="cancel", filter=BulkFilter(**asked), reason=reason, dry_run=is_dry)
    return plain(await client.bulk(body))


def _look() -> Any:  # noqa: ANN401 - imported when it is needed
    from noetl.cli.listing import Look

    return Look(head=_HEAD, row=_row, name=lambda item: f"execution/{item['execution_id']}")


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    error = item.get("error") or {}
    message = item.get("message") or error.get("detail") or error.get("message") or "-"
    children = str(item.get("cancelled_children", "-"))
    return item["execution_id"], item.get("status") or item["outcome"], children, message


CANCEL = Spec(
    run=cancel,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        'noetl executions cancel @latest --reason "not needed" || echo "it has ended"',
        "noetl executions list --status RUNNING -o name | xargs -r noetl executions cancel",
        "noetl executions cancel --filter --path 'etl/*' --since 2h --yes",
    ),
    takes="executions",
    is_remote=True,
    is_mutating=True,
)
