"""Findings shown to a person, to a program, or to a code host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.cli.findings import refused, sentence
from noetl.cli.github import annotation
from noetl.cli.sarif import sarif
from noetl.cli.text import counted

if TYPE_CHECKING:
    from noetl.cli.findings import Found
    from noetl.cli.output import Output


def report(out: Output, found: Found, *, is_failure: bool) -> None:
    """Show the findings; raise when the command must not end well."""
    _show(out, found, is_failure=is_failure)
    if is_failure:
        raise refused(found)
    if found.items:
        out.note(found.summary())
    else:
        verb = "is" if found.files == 1 else "are"
        out.note(f"{counted(found.files, 'file')} {verb} valid")


def _show(out: Output, found: Found, *, is_failure: bool) -> None:
    if out.format == "sarif":
        out.document(sarif(found.items))
    elif out.format == "github":
        for item in found.items:
            out.line(annotation(item))
    elif not out.is_structured:
        for item in found.items:
            out.line(sentence(out, item))
    elif not is_failure:
        out.items([item.as_json() for item in found.items])
