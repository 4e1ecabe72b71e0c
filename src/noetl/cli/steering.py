"""`noetl executions pause`, `resume`, `finalize`, `rerun` and `fork`: runs that are steered."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.wishes import InputFile, Payload, TextFiles, Texts, Values

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.executions import Execution, Started
    from noetl.cli.inputs import Inputs
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_ENDINGS = ("COMPLETED", "FAILED", "CANCELLED")
_Execution = Annotated[str, typer.Argument(metavar="ID", help="An id, @latest, or @latest:PATH.")]
_Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; the run's log keeps it.")
]
_Version = Annotated[
    str | None, typer.Option("-V", "--version", metavar="same|latest|N", help="Of the playbook.")
]


def pause(ctx: typer.Context, execution: _Execution, reason: _Reason = "") -> None:
    """Hold a run: nothing new is issued, what runs ends. A paused one stays so."""
    _control(ctx.obj, execution, "pause", reason)


def resume(ctx: typer.Context, execution: _Execution, reason: _Reason = "") -> None:
    """Let a run go on that was paused."""
    _control(ctx.obj, execution, "resume", reason)


def _control(out: "Output", word: str, verb: str, reason: str) -> None:
    from noetl.api.executions import Control
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        name = await execution_of(client, word)
        return plain(await getattr(client, verb)(name, Control(reason=reason)))

    found = ask(out, work)
    show_one(out, found, f"execution/{found['execution_id']}")


def finalize(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    execution: _Execution,
    status: Annotated[
        str, typer.Option("--status", metavar="|".join(_ENDINGS), help="How it ends.")
    ] = "FAILED",
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON|@FILE", help="What it came to.")
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="What went wrong.")
    ] = None,
    reason: _Reason = "",
) -> None:
    """End a run by hand, with a status of your choice; the log says that it was forced.

    A run that has ended otherwise stays as it is, which ends with 6.
    """
    from noetl.api.executions import Finalize
    from noetl.api.plain import plain
    from noetl.cli.asking import confirm
    from noetl.cli.inputs import value_of
    from noetl.cli.listing import show_one
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask
    from noetl.cli.text import nearest

    out: Output = ctx.obj
    ending = status.upper()
    if ending not in _ENDINGS:
        hint = nearest(ending, _ENDINGS)
        raise CommandFailed("usage", f"a run does not end as `{status}`", hint=hint)
    body = Finalize(
        status=ending,
        result=None if result is None else value_of("--result", result),
        error=None if error is None else {"code": "finalized", "message": error},
        reason=reason,
    )
    confirm(out, f"end {execution} as {ending}, whatever it does?")

    async def work(client: "Client") -> dict[str, Any]:
        return plain(await client.finalize(await execution_of(client, execution), body))

    found = ask(out, work)
    show_one(out, found, f"execution/{found['execution_id']}")


def rerun(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    execution: _Execution,
    values: Values = None,
    texts: Texts = None,
    files: TextFiles = None,
    payload: Payload = None,
    inputs: InputFile = None,
    version: _Version = None,
) -> None:
    """Start the playbook of a run again, with the same inputs, or with some of them changed."""
    from noetl.api.executions import Rerun
    from noetl.cli.references import execution_of

    asked = _inputs(values, texts, files, payload, inputs)

    async def work(client: "Client") -> "Started":
        name = await execution_of(client, execution)
        edited = await _edited(client, name, asked)
        return await client.rerun(name, Rerun(payload=edited, version=_version(version)))

    _show_start(ctx.obj, work)


def fork(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    execution: _Execution,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="After this event.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="STEP", help="Before this step; failed: the first failed."),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option("--set-state", metavar="KEY=VALUE", help="A name of ctx; JSON, else text."),
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            "--set-result", metavar="STEP=JSON|@FILE", help="What a step is to have returned."
        ),
    ] = None,
    values: Values = None,
    texts: Texts = None,
    files: TextFiles = None,
    payload: Payload = None,
    inputs: InputFile = None,
    version: _Version = None,
) -> None:
    """Start a run in the state that another one had; that one stays as it is.

    What was done before that point is taken over, and the rest is done again. Inputs, `ctx` and
    results of steps may be changed on the way.
    """
    from noetl.api.executions import Fork
    from noetl.cli.inputs import pair, value_of
    from noetl.cli.references import execution_of

    if (at is None) == (step is None):
        message = "`--at` or `--step` says where: exactly one of them is needed"
        raise CommandFailed("usage", message, hint="`noetl executions events ID` shows each seq")
    asked = _inputs(values, texts, files, payload, inputs)
    context = {}
    for word in states or ():
        key, text = pair("--set-state", word)
        context[f"ctx.{key.removeprefix('ctx.')}"] = _loose(text)
    returned = {}
    for word in results or ():
        name, text = pair("--set-result", word)
        returned[name] = value_of("--set-result", text)

    async def work(client: "Client") -> "Started":
        source = await execution_of(client, execution)
        body = Fork(
            from_seq=at,
            from_step=step,
            payload=await _edited(client, source, asked),
            set=context,
            results=returned,
            version=_version(version),
        )
        return await client.fork(source, body)

    _show_start(ctx.obj, work)


def _inputs(
    values: list[str] | None,
    texts: list[str] | None,
    files: list[str] | None,
    payload: str | None,
    file: str | None,
) -> "Inputs":
    from noetl.cli.inputs import Inputs

    return Inputs(
        file=file,
        payload=payload,
        files=tuple(files or ()),
        texts=tuple(texts or ()),
        values=tuple(values or ()),
    )


async def _edited(client: "Client", name: str, asked: "Inputs") -> dict[str, Any] | None:
    """The inputs of a run with what is changed; none when nothing is."""
    from noetl.cli.inputs import Inputs, merged, payload_of

    if asked == Inputs():
        return None
    source: Execution = await client.execution(name, with_state=False)
    return merged(source.workload, payload_of(asked))


def _loose(text: str) -> Any:  # noqa: ANN401 - a value of the caller's own
    from noetl.cli.inputs import loose

    return loose(text)


def _version(word: str | None) -> str | int | None:
    return int(word) if word is not None and word.isascii() and word.isdigit() else word


def _show_start(out: "Output", work: Any) -> None:  # noqa: ANN401 - a coroutine function
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    found = plain(ask(out, work))
    show_one(out, found, f"execution/{found['execution_id']}")


_spec = partial(remote_spec, takes="executions", is_mutating=True)

PAUSE = _spec(
    pause,
    'noetl executions pause @latest --reason "maintenance" || echo "it has ended"',
    'noetl executions pause @latest -o json || echo "it has ended"',
)
RESUME = _spec(
    resume,
    'noetl executions resume @latest || echo "it is not paused"',
    'noetl executions resume @latest -o name || echo "it is not paused"',
)
FINALIZE = _spec(
    finalize,
    "noetl executions finalize @latest --status COMPLETED --yes",
    'noetl executions finalize @latest --status FAILED --error lost -y || echo "it has ended"',
)
RERUN = _spec(
    rerun,
    "noetl executions rerun @latest",
    "noetl executions rerun @latest --set name=Ada --version latest -o name",
)
FORK = _spec(
    fork,
    "noetl executions fork @latest --at 3",
    "noetl executions fork @latest:examples/hello --at 1 --set name=Ada -o json",
)
