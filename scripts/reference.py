"""Writes the generated pages of docs/reference, or checks them and every link."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.cli.failures import FAILURES
from noetl.cli.reference import cli_reference
from noetl.dsl.schema import kinds, schema
from noetl.dsl.tasks import KINDS as TOOLS
from noetl.settings import SETTINGS
from scripts import interfaces, language, processes, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by `make docs`; do not edit. -->"

# Pages outside docs/ that carry links too.
FRONT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PLACE = re.compile(r'<a id="(?P<name>[^"]+)"></a>')
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*$", re.MULTILINE)


def settings_page() -> str:
    """The table of environment variables."""
    rows = (
        f"| `{s.name}`{''.join(f', `{alias}`' for alias in s.aliases)} | {s.kind} "
        f"| {f'`{s.default}`' if s.default else '-'} | {', '.join(s.processes) or 'nobody yet'} "
        f"| {s.meaning} |"
        for s in SETTINGS
    )
    return page(
        "Settings",
        "Every environment variable that NoETL reads.",
        "An option wins over a variable, and a variable over the file of settings.",
        "In the file (`NOETL_CONFIG`, `noetl.toml`) `NOETL_PORT` is called `port`.",
        "A secret may be named by its file instead: `NAME_FILE`.",
        "`--print-settings` of `noetl server` and `noetl worker` shows what is in force.",
        "A `NOETL_*` name that is not in this table is a warning with the nearest known name.",
        "A name that nobody reads yet has its place and does nothing; setting it is a warning.",
        "",
        "| name | type | default | read by | meaning |",
        "|---|---|---|---|---|",
        *rows,
    )


def page(title: str, *lines: str) -> str:
    """Text of a page with its heading and the note that it is generated."""
    return "\n".join((f"# {title}", "", NOTE, "", *lines, ""))


def errors_page() -> str:
    """The codes that a failing command prints."""
    rows = (
        f'| <a id="{code}"></a>`{code}` | {failure.exit_code} | {failure.status} '
        f"| {failure.meaning} |"
        for code, failure in FAILURES.items()
    )
    return page(
        "Errors",
        "A command that fails prints `error[code]: message` and a hint, or one JSON object.",
        "Findings in documents have [codes of their own](dsl-errors.md).",
        "",
        "| code | exit code | HTTP status | meaning |",
        "|---|---|---|---|",
        *rows,
        "",
        *vocabulary.problem_lines(),
        *vocabulary.run_code_lines(),
        *vocabulary.kind_lines(),
    )


def language_page(kind: str) -> Callable[[], str]:
    """The reference of one kind of document."""
    return lambda: page(kind, *language.kind_lines(kind))


def tool_page(kind: str) -> Callable[[], str]:
    """The reference of one kind of tool."""
    return lambda: page(f"Tool: {kind}", *language.tool_lines(kind))


def schema_page(kind: str) -> Callable[[], str]:
    """The published JSON Schema of one kind."""
    return lambda: json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings_page,
    "docs/reference/cli.md": cli_reference,
    "docs/reference/errors.md": errors_page,
    "docs/reference/api.md": lambda: page("HTTP API", *interfaces.api_lines()),
    "docs/reference/gateway-api.md": lambda: page(
        "HTTP API of the gateway", *interfaces.gateway_lines()
    ),
    "docs/reference/metrics.md": lambda: page("Metrics", *interfaces.metric_lines()),
    "docs/reference/processes.md": lambda: page("Processes", *processes.process_lines()),
    "docs/reference/events.md": lambda: page("Events", *vocabulary.event_lines()),
    "docs/reference/dsl-errors.md": lambda: page("Codes of the language", *language.code_lines()),
    "docs/reference/tools.md": lambda: page("Tools", *language.tools_lines()),
    "docs/reference/templates.md": lambda: page("Filters and tests", *language.template_lines()),
}
for _kind in kinds():
    PAGES[f"docs/reference/language/{_kind}.md"] = language_page(_kind)
    PAGES[f"docs/reference/schema/{_kind}.json"] = schema_page(_kind)
for _kind in TOOLS:
    PAGES[f"docs/reference/tools/{_kind}.md"] = tool_page(_kind)
PAGES["docs/reference/tools/task_sequence.md"] = lambda: page(
    "Tool: task_sequence", *language.sequence_lines()
)


def stale() -> Iterator[str]:
    """One sentence per generated page that differs from its file."""
    for name, render in PAGES.items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != render():
            yield f"{name} is stale; run `make docs`"


def dead_links(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    """One sentence per link inside the repository to a file or heading that is not there."""
    for path in paths:
        for match in LINK.finditer(FENCE.sub("", path.read_text(encoding="utf-8"))):
            target, _, anchor = match["target"].partition("#")
            if ":" in target:
                continue
            goal = (path.parent / target).resolve() if target else path
            if not goal.exists():
                yield f"{path.relative_to(root)}: no file {match['target']}"
            elif anchor and anchor not in anchors(goal):
                yield f"{path.relative_to(root)}: no heading {match['target']}"


def anchors(path: Path) -> set[str]:
    """The names that a link into a page may use."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    named = {match["name"] for match in PLACE.finditer(text)}
    return named | {slug(match["text"]) for match in HEADING.finditer(text)}


def slug(heading: str) -> str:
    """A heading as renderers of Markdown name it."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them and follow the links."""
    if arguments != ["--check"]:
        for name, render in PAGES.items():
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(render(), encoding="utf-8")
        return 0
    front = [ROOT / name for name in FRONT]
    problems = [*stale(), *dead_links(ROOT, [*front, *sorted((ROOT / "docs").rglob("*.md"))])]
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
