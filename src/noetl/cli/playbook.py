"""A playbook that a command line names: read, or refused with its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.files import Source
    from noetl.cli.output import Output
    from noetl.dsl.playbook.document import Playbook


def playbook_of(out: Output, source: Source, *, otherwise: str) -> Playbook:
    """The playbook of a file; `otherwise` tells why nothing else will do."""
    from noetl.cli.findings import Finding, Found, refused, tell
    from noetl.cli.parsing import parsed_here
    from noetl.dsl.playbook.document import Playbook

    parsed = parsed_here(source.data)
    if isinstance(parsed.model, Playbook):
        return parsed.model
    errors = tuple(Finding(source.name, item) for item in parsed.errors)
    if not errors:
        message = f"{source.name} is a {parsed.kind}, not a Playbook"
        raise CommandFailed("invalid_playbook", message, hint=otherwise)
    tell(out, errors)
    raise refused(Found(files=1, items=errors, overflow=parsed.overflow))
