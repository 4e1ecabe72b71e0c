"""`noetl api`: one call of a route, as it is."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.http import Answer
    from noetl.cli.output import Output

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
_READS = ("GET", "HEAD")
_PATHS = ("/api/", "/metrics", "/health", "/livez", "/ready", "/noetl/", "/openapi")


def api(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    method: Annotated[str, typer.Argument(metavar="METHOD", help="GET, POST, PUT, DELETE ..")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Like /api/executions?limit=5.")],
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="KEY=VALUE", help="Of the body; of the query with GET."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="The body; - is stdin.")
    ] = None,
    paginate: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--paginate", help="Follow the cursors of a list to its end.")
    ] = False,
) -> None:
    """Call a route with the bearer of the context; its status is told on stderr.

    An answer that is a problem ends as every command does that meets it.
    """
    from noetl.cli.asking import announce
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    verb = method.upper()
    if verb not in _METHODS:
        raise CommandFailed("usage", f"`{method}` is no method", hint=nearest(verb, _METHODS))
    if not path.startswith(_PATHS) or not path.isascii():
        hint = "it begins with /api/"
        raise CommandFailed("usage", f"`{path}` is not the path of a route", hint=hint)
    if fields and file is not None:
        message = "`--field` and `--input` exclude each other"
        raise CommandFailed("usage", message, hint="leave one of them out")
    if paginate and verb != "GET":
        raise CommandFailed("usage", "only a GET has pages", hint="leave `--paginate` out")
    if verb not in _READS:
        announce(out)
    where, body = _request(verb, path, fields or [], file)
    if paginate:
        _show_value(out, ask(out, lambda client: _all(out, client, where)))
        return
    _show(out, ask(out, lambda client: _once(out, client, verb, where, body)))


def _request(verb: str, path: str, fields: list[str], file: str | None) -> tuple[str, bytes]:
    """The path with its query, and the body."""
    import json
    from urllib.parse import urlencode

    from noetl.cli.files import read
    from noetl.cli.inputs import Inputs, pair, payload_of

    if file is not None:
        return path, read(file).data
    if not fields:
        return path, b""
    if verb in _READS:
        mark = "&" if "?" in path else "?"
        return f"{path}{mark}{urlencode([pair('--field', word) for word in fields])}", b""
    return path, json.dumps(payload_of(Inputs(values=tuple(fields)))).encode()


async def _once(out: "Output", client: "Client", verb: str, path: str, body: bytes) -> "Answer":
    answer = await client.raw(verb, path, body)
    out.note(f"{answer.status}")
    fault = client.refusal(answer)
    if fault is not None:
        raise fault
    return answer


async def _all(out: "Output", client: "Client", path: str) -> dict[str, Any]:
    """The items of every page of a list."""
    import json
    from urllib.parse import urlencode

    items: list[Any] = []
    cursor = ""
    while True:
        mark = "&" if "?" in path else "?"
        more = f"{mark}{urlencode({'cursor': cursor})}" if cursor else ""
        page = json.loads((await _once(out, client, "GET", path + more, b"")).body)
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            hint = "leave `--paginate` out"
            raise CommandFailed("usage", f"{path} answers no list of items", hint=hint)
        items += page["items"]
        cursor = page.get("next_cursor") or ""
        if not cursor:
            return {"items": items, "next_cursor": None}


def _show(out: "Output", answer: "Answer") -> None:
    import json

    try:
        value = json.loads(answer.body) if answer.body else None
    except ValueError:
        out.write(answer.body.decode("utf-8", "replace"))
        return
    if answer.body:
        _show_value(out, value)


def _show_value(out: "Output", value: Any) -> None:  # noqa: ANN401 - JSON of the server
    is_list = isinstance(value, dict) and isinstance(value.get("items"), list)
    if out.format == "jsonl" and is_list:
        out.items(value["items"], value.get("next_cursor"))
    else:
        out.document(value)


COMMAND = Spec(
    run=api,
    outputs=("json", "yaml", "jsonl"),
    examples=(
        "noetl api GET /api/executions --field limit=2",
        "noetl api POST /api/execute --field path=examples/hello --field payload.name=Ada",
        "noetl api GET '/api/executions?limit=200' --paginate -o jsonl",
    ),
    takes="nothing",
    is_remote=True,
)
