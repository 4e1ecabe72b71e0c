"""Checks a commit message: Conventional Commits with a known scope and a short subject."""

from __future__ import annotations

import re
import sys
from pathlib import Path

TYPES = ("feat", "fix", "docs", "test", "perf", "refactor", "build", "ci", "chore", "revert")
LONGEST_SUBJECT = 100
SOURCE = Path(__file__).resolve().parent.parent / "src" / "noetl"
OTHER_SCOPES = {"bench", "changes", "deploy", "docs", "examples", "gates", "scripts", "tests", "ui"}

SUBJECT = re.compile(r"(?P<type>[a-z]+)(\((?P<scope>[a-z0-9-]+)\))?!?: (?P<text>\S.*)")


def scopes() -> set[str]:
    """The names a scope may have: the top packages and the folders beside them."""
    return {path.stem for path in SOURCE.iterdir() if path.stem[0] != "_"} | OTHER_SCOPES


def problems(message: str) -> list[str]:
    """One sentence per rule that the message breaks."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    match = SUBJECT.fullmatch(subject)
    if match is None:
        return [f"the subject is not 'type(scope): text': {subject!r}"]
    found = []
    if match["type"] not in TYPES:
        found.append(f"unknown type {match['type']!r}; one of {', '.join(TYPES)}")
    if match["scope"] and match["scope"] not in scopes():
        found.append(f"unknown scope {match['scope']!r}; one of {', '.join(sorted(scopes()))}")
    if len(subject) > LONGEST_SUBJECT:
        found.append(f"the subject has {len(subject)} characters, {LONGEST_SUBJECT} at most")
    if match["text"].endswith("."):
        found.append("the subject ends with a full stop")
    if len(lines) > 1 and lines[1]:
        found.append("the second line is not blank")
    return found


def main() -> int:
    """Check the file that git names."""
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
