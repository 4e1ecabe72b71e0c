"""Rewriting a file to today's forms: all or nothing, the file's mode kept."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.cli.failures import CommandFailed
from noetl.cli.text import counted

if TYPE_CHECKING:
    from noetl.cli.files import Source
    from noetl.cli.output import Output
    from noetl.dsl.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """One document after its migration."""

    source: Source
    text: str
    changes: tuple[str, ...]
    remaining: tuple[Diagnostic, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the text differs from the file's."""
        return self.text.encode() != self.source.data

    def as_json(self) -> dict[str, object]:
        """What happened, without the text."""
        return {
            "file": self.source.name,
            "changed": self.is_changed,
            "changes": list(self.changes),
            "remaining": [item.as_json() for item in self.remaining],
        }


def migrated(source: Source) -> Rewritten:
    """The document in today's forms; nothing is written."""
    from noetl.cli.parsing import parsed_here
    from noetl.dsl.migrate.rewrite import migrate

    try:
        text = source.data.decode()
    except UnicodeDecodeError:
        errors = parsed_here(source.data).errors
        return Rewritten(source=source, text="", changes=(), remaining=errors)
    result = migrate(text)
    return Rewritten(
        source=source,
        text=result.text,
        changes=tuple(result.changes),
        remaining=tuple(result.remaining),
    )


def rewrite(source: Source) -> Rewritten:
    """Migrate one document and, when it is a file, put the new text in its place."""
    result = migrated(source)
    if source.path is not None and result.changes and result.is_changed:
        replace(source.path, result.text)
    return result


def say(out: Output, result: Rewritten) -> None:
    """Tell what a migration changed."""
    if not result.changes:
        return
    out.note(f"{result.source.name}: {counted(len(result.changes), 'change')}")
    for change in result.changes:
        out.note(f"  {change}")


def replace(path: Path, text: str) -> None:
    """Write beside the file, then rename: a reader sees the old text or the new one."""
    target = path.resolve()
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(target.stat().st_mode & 0o7777)
        Path(temporary).replace(target)
    except OSError as fault:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise CommandFailed(
            "file_unwritable",
            f"`{path}` cannot be rewritten: {fault.strerror}",
            hint="check the permissions of its folder",
        ) from fault
