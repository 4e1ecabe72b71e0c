"""The table of examples/README.md: how each example is run, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.cli.inputs import Inputs, payload_of
from noetl.dsl.documents.matching import matches
from tests.e2e.playing import suite_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.documents.testcase import Case

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
LINE = re.compile(
    r"^\| [^|*]+ \| `(?P<words>[^`]+)` \| (?P<status>[A-Z]+) (?P<told>.+) \|$", re.MULTILINE
)
LINES = [match.groupdict() for match in LINE.finditer(PAGE)]


def name_of(line: Mapping[str, str]) -> str:
    """The name of a line's example."""
    return line["words"].split()[0].removesuffix(".yaml")


def asked(line: Mapping[str, str], folder: Path) -> tuple[Path, dict[str, Any], Case | None]:
    """The file, the payload and the mocks of a line's command."""
    name, *words = line["words"].split()
    options = list(zip(words[::2], words[1::2], strict=True))
    payload = payload_of(Inputs(values=tuple(value for key, value in options if key == "--set")))
    mocks = [suite_of(folder / value).spec.cases[0] for key, value in options if key == "--mock"]
    return folder / name, payload, next(iter(mocks), None)


def faults_of(line: Mapping[str, str], found: Mapping[str, Any]) -> list[str]:
    """What is not as a line says."""
    if found["status"] != line["status"]:
        return [f"{found['status']}: {found['error']}"]
    told = line["told"]
    if line["status"] == "COMPLETED":
        return matches(json.loads(told.strip("`")), found["result"])
    ended = f"`{found['error']['kind']}` in `{found['error']['step']}`"
    return [] if told == ended else [ended]
