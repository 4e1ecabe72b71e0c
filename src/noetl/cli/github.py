"""Findings as workflow commands: annotations on the lines of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.cli.findings import words
from noetl.cli.text import visible

if TYPE_CHECKING:
    from noetl.cli.findings import Finding


def annotation(item: Finding) -> str:
    """One command, such as `::error file=a.yaml,line=3,...::unknown key`."""
    found = item.diagnostic
    properties = {
        "file": item.file,
        "line": found.span.line,
        "endLine": found.span.end_line,
        "col": found.span.column,
        "endColumn": found.span.end_column,
        "title": found.code,
    }
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{found.severity} {listed}::{_data(words(found))}"


def _data(text: str) -> str:
    return visible(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
