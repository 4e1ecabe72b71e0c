"""What was found in files, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.cli.failures import CommandFailed
from noetl.cli.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from noetl.cli.files import Source
    from noetl.cli.output import Output, Stream
    from noetl.dsl.diagnostics import Diagnostic
    from noetl.dsl.parse import Parsed


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic and the file it is about."""

    file: str
    diagnostic: Diagnostic

    @property
    def is_error(self) -> bool:
        """Whether the file must be refused."""
        return self.diagnostic.severity == "error"

    def as_json(self) -> dict[str, object]:
        """The diagnostic's own fields after the file."""
        return {"file": self.file, **self.diagnostic.as_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All findings of one command, in the order of the files."""

    files: int
    items: tuple[Finding, ...]
    overflow: int = 0

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that refuse a file."""
        return tuple(item for item in self.items if item.is_error)

    def summary(self) -> str:
        """`2 errors and 1 warning in orders.yaml`."""
        errors = len(self.errors)
        warnings = len(self.items) - errors
        parts = [counted(errors, "error")] if errors or not warnings else []
        parts += [counted(warnings, "warning")] if warnings else []
        files = dict.fromkeys(item.file for item in self.items)
        where = next(iter(files)) if len(files) == 1 else counted(len(files), "file")
        more = f" ({self.overflow} more are not shown)" if self.overflow else ""
        return f"{' and '.join(parts)} in {where}{more}"


def search(sources: Iterable[Source], diagnose: Callable[[Parsed], Sequence[Diagnostic]]) -> Found:
    """Read every document and collect what `diagnose` says about it."""
    from noetl.cli.parsing import parsed_here

    items: list[Finding] = []
    files = overflow = 0
    for source in sources:
        parsed = parsed_here(source.data)
        items += [Finding(source.name, diagnostic) for diagnostic in diagnose(parsed)]
        files += 1
        overflow += parsed.overflow
    return Found(files=files, items=tuple(items), overflow=overflow)


def refused(found: Found) -> CommandFailed:
    """The failure of a command whose files broke the language."""
    first = next(iter(found.errors or found.items))
    return CommandFailed(
        "invalid_playbook",
        found.summary(),
        hint=f"run `noetl explain {first.diagnostic.code}`",
        details={"diagnostics": [item.as_json() for item in found.items]},
    )


def sentence(out: Output, item: Finding, *, to: Stream = "stdout") -> str:
    """`orders.yaml:14:7: error DSL030: unknown key ... (did you mean ...?) [/workflow/1]`."""
    found = item.diagnostic
    place = f"{visible(item.file)}:{found.span.line}:{found.span.column}:"
    place = out.styled(place, "bold", to=to)
    severity = out.styled(found.severity, "bold", "red" if item.is_error else "yellow", to=to)
    pointer = out.styled(f" [{visible(found.pointer)}]", "dim", to=to) if found.pointer else ""
    return f"{place} {severity} {found.code}: {visible(words(found))}{pointer}"


def tell(out: Output, items: Iterable[Finding]) -> None:
    """Show findings beside the data, for commands whose data is something else."""
    if not out.is_structured:
        for item in items:
            out.detail(f"{sentence(out, item, to='stderr')}\n")


def words(found: Diagnostic) -> str:
    """The message and, in parentheses, what to do."""
    return f"{found.message} ({found.hint.rstrip('.')})" if found.hint else found.message
