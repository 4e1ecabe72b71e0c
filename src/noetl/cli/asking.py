"""What a person has to agree to, and the servers where that has to be typed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.output import Output


def confirm(out: Output, question: str) -> None:
    """Something is lost only when somebody said so."""
    import typer

    if out.is_agreed:
        return
    _must_be_asked(out, question, "add `--yes`")
    if not typer.confirm(question, err=True):
        raise CommandFailed("confirmation_required", "nothing was done")


def guard(out: Output, question: str) -> None:
    """As `confirm`; a production server wants its name typed, or `--yes --context NAME`."""
    import typer

    name = production(out)
    if name is None:
        confirm(out, question)
        return
    named = out.where.context if out.where is not None else None
    if out.is_agreed and named == name:
        return
    _must_be_asked(out, f"{name} is production: {question}", f"add `--yes --context {name}`")
    typed = typer.prompt(f"{question} Type `{name}` to go on", err=True, default="")
    if typed != name:
        raise CommandFailed("confirmation_required", "nothing was done")


def announce(out: Output) -> None:
    """Name a production server before something of it changes."""
    name = production(out)
    if name is not None:
        out.shout(f"production: {name}")


def production(out: Output) -> str | None:
    """The context of the server that is meant, when it is marked as production."""
    from noetl.cli.contexts import read_contexts

    contexts = read_contexts()
    marked = {name: one for name, one in contexts.entries.items() if one.is_production}
    if not marked:
        return None
    from noetl.cli.remote import target_url

    url = target_url(out)
    named = out.where.context if out.where is not None else None
    fits = [name for name, one in marked.items() if url in {one.server_url, one.gateway_url}]
    return named if named in fits else next(iter(fits), None)


def _must_be_asked(out: Output, question: str, hint: str) -> None:
    """A prompt appears only where a person sits."""
    if not out.may_ask or out.is_structured or sys.stdin is None or not sys.stdin.isatty():
        raise CommandFailed("confirmation_required", question, hint=hint)
