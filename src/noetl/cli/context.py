"""`noetl context`: servers and their tokens under names."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.contexts import Context, Contexts
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the server.")]


def list_contexts(ctx: typer.Context) -> None:
    """List the contexts; a star marks the current one."""
    from noetl.cli.contexts import read_contexts
    from noetl.cli.listing import Look, show_list

    out: Output = ctx.obj
    found = read_contexts()
    items = [_item(found, name) for name in found.entries]
    look = Look(
        head=("", "NAME", "SERVER", "TOKEN", "PRODUCTION"),
        row=_row,
        name=lambda item: f"context/{item['name']}",
        nothing="there is no context; make one with `noetl context add`",
    )
    show_list(out, items, look)


def show(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name; the current one.")
    ] = None,
) -> None:
    """Show one context; its token stays in its file."""
    from noetl.cli.contexts import read_contexts
    from noetl.cli.listing import show_one

    out: Output = ctx.obj
    found = read_contexts()
    wanted = _plain(name or out.settings.context or found.current)
    if not wanted:
        hint = "choose one with `noetl context use`"
        raise CommandFailed("context_not_found", "no context is current", hint=hint)
    _entry(found, wanted)
    show_one(out, _item(found, wanted), f"context/{wanted}")


def use(ctx: typer.Context, name: _Name) -> None:
    """Make a context the current one."""
    from noetl.cli.contexts import read_contexts, write_contexts

    found = read_contexts()
    wanted = _plain(name)
    _entry(found, wanted)
    write_contexts(replace(found, current=wanted))
    _tell(ctx.obj, wanted, f"`{wanted}` is the current context")


def add(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    name: _Name,
    server_url: Annotated[
        str | None, typer.Option("--server-url", metavar="URL", help="Where the server is.")
    ] = None,
    gateway_url: Annotated[
        str | None,
        typer.Option("--gateway-url", metavar="URL", help="Where its gateway is; or it alone."),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="File with the bearer; it stays there."),
    ] = None,
    token_stdin: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--token-stdin", help="Read the bearer from stdin, and keep it 0600.")
    ] = False,
    is_current: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--use", help="Make it the current one.")
    ] = False,
) -> None:
    """Keep a server under a name; a known name gets a new meaning.

    One that has only a gateway is talked to through it; `noetl login` signs in there. The first
    context becomes the current one. A token is never an option's value.
    """
    from pathlib import Path

    from noetl.cli import contexts

    if token_file is not None and token_stdin:
        message = "`--token-file` and `--token-stdin` exclude each other"
        raise CommandFailed("usage", message, hint="leave one of them out")
    contexts.checked_name(name)
    url = contexts.checked_url(server_url) if server_url else ""
    gateway = contexts.checked_url(gateway_url, "--gateway-url") if gateway_url else ""
    if not url and not gateway:
        message = "a context needs `--server-url`, or `--gateway-url`"
        raise CommandFailed("usage", message, hint="it is like https://noetl.example.org")
    former = contexts.read_contexts().entries.get(name)
    kept = "" if token_file is None else str(Path(token_file).expanduser().absolute())
    if kept and not Path(kept).is_file():
        message = f"there is no token file `{token_file}`"
        raise CommandFailed("file_not_found", message, hint="check the path")
    if token_stdin:
        kept = contexts.store_token(name, _read_token())
    contexts.write_context(name, url, kept, gateway_url=gateway, make_current=is_current)
    if former is not None:
        contexts.forget_token(former)
        contexts.forget_session(former)
    _tell(ctx.obj, name, f"`{name}` is {url or gateway}")


def delete(ctx: typer.Context, name: _Name) -> None:
    """Forget a context, and the token and the session that were kept for it."""
    from noetl.cli.asking import confirm
    from noetl.cli.contexts import forget_session, forget_token, read_contexts, write_contexts

    found = read_contexts()
    wanted = _plain(name)
    entry = _entry(found, wanted)
    confirm(ctx.obj, f"forget the context `{wanted}` ({entry.server_url or entry.gateway_url})?")
    left = {key: value for key, value in found.entries.items() if key != wanted}
    current = "" if found.current == wanted else found.current
    write_contexts(replace(found, current=current, entries=left))
    forget_token(entry)
    forget_session(entry)
    _tell(ctx.obj, wanted, f"`{wanted}` is forgotten")


def rename(
    ctx: typer.Context,
    name: _Name,
    to: Annotated[str, typer.Argument(metavar="NEW", help="Its name from now on.")],
) -> None:
    """Give a context another name."""
    from noetl.cli.contexts import checked_name, read_contexts, write_contexts

    found = read_contexts()
    wanted = _plain(name)
    _entry(found, wanted)
    checked_name(to)
    if to in found.entries and to != wanted:
        message = f"there is a context `{to}` already"
        raise CommandFailed("usage", message, hint=f"delete it with `noetl context delete {to}`")
    entries = {to if key == wanted else key: value for key, value in found.entries.items()}
    current = to if found.current == wanted else found.current
    write_contexts(replace(found, current=current, entries=entries))
    _tell(ctx.obj, to, f"`{wanted}` is now `{to}`")


def mark_production(
    ctx: typer.Context,
    name: _Name,
    off: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--off", help="It is none any more.")
    ] = False,
) -> None:
    """Mark a context as production.

    Its name is then shown in red by every command that changes something there, and has to be
    typed before many things are cancelled, deleted, pruned or drained.
    """
    from noetl.cli.contexts import read_contexts, write_contexts

    found = read_contexts()
    wanted = _plain(name)
    entry = replace(_entry(found, wanted), is_production=not off)
    write_contexts(replace(found, entries={**found.entries, wanted: entry}))
    _tell(ctx.obj, wanted, f"`{wanted}` is {'not ' if off else ''}production")


def _plain(name: str) -> str:
    return name.removeprefix("context/")


def _entry(found: "Contexts", name: str) -> "Context":
    from noetl.cli.remote import no_context

    if name not in found.entries:
        raise no_context(name, tuple(found.entries))
    return found.entries[name]


def _item(found: "Contexts", name: str) -> dict[str, Any]:
    return {"name": name, **asdict(found.entries[name]), "is_current": name == found.current}


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    is_production = "yes" if item["is_production"] else "-"
    bearer = "a session" if item["session"] else item["token_file"] or "-"
    known = (item["name"], item["server_url"] or item["gateway_url"], bearer)
    return ("*" * item["is_current"], *known, is_production)


def _tell(out: "Output", name: str, text: str) -> None:
    if out.is_structured:
        from noetl.cli.contexts import read_contexts

        found = read_contexts()
        out.document(_item(found, name) if name in found.entries else {"name": name})
    elif out.format == "name":
        out.line(f"context/{name}")
    else:
        out.note(text)


def _read_token() -> str:
    import sys

    token = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not token or any(char.isspace() for char in token):
        message = "stdin holds no token"
        raise CommandFailed("usage", message, hint="pipe it: `... | noetl context add`")
    return token


_ADDED = "noetl context add staging --server-url https://noetl.example.org"


def _spec(run: Any, *examples: str) -> Spec:  # noqa: ANN401 - the function of a command
    return Spec(run=run, outputs=_OUTPUTS, examples=examples, takes="contexts")


COMMAND = Group(
    about="Keep servers and their tokens under names, in ~/.config/noetl/config.toml (0600).",
    commands={
        "list": _spec(list_contexts, "noetl context list", "noetl context list -o json"),
        "show": _spec(
            show, f"{_ADDED} && noetl context show", f"{_ADDED} && noetl context show staging"
        ),
        "use": _spec(
            use,
            f"{_ADDED} && noetl context use staging",
            f"{_ADDED} -q && noetl context use staging -o json",
        ),
        "add": _spec(add, _ADDED, f"echo secret | {_ADDED} --token-stdin --use"),
        "delete": _spec(
            delete,
            f"{_ADDED} && noetl context delete staging --yes",
            f"{_ADDED} -q && noetl context delete staging -y -o name",
        ),
        "rename": _spec(
            rename,
            f"{_ADDED} && noetl context rename staging stage",
            f"{_ADDED} -q && noetl context rename staging stage -o json",
        ),
        "mark-production": _spec(
            mark_production,
            f"{_ADDED} && noetl context mark-production staging",
            f"{_ADDED} -q && noetl context mark-production staging --off -o json",
        ),
    },
    examples=(_ADDED, "noetl context list"),
)
