"""Findings as a SARIF 2.1.0 log, the form that code hosts and editors import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from noetl import __version__
from noetl.cli.findings import words
from noetl.dsl.codes import CODES, doc_of, severity_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.cli.findings import Finding

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_SITE: Final = "https://noetl.io"


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """One run with a rule per code and a result per finding."""
    codes = sorted({item.diagnostic.code for item in findings})
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "noetl",
                        "version": __version__,
                        "informationUri": _SITE,
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": True}],
                "results": [_result(item, codes.index(item.diagnostic.code)) for item in findings],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    known = CODES.get(code)
    about = {"help": {"text": known.remedy}} if known else {}
    return {
        "id": code,
        "shortDescription": {"text": known.cause if known else code},
        "helpUri": _SITE + doc_of(code),
        "defaultConfiguration": {"level": severity_of(code)},
        **about,
    }


def _result(item: Finding, index: int) -> dict[str, Any]:
    found = item.diagnostic
    region = {
        "startLine": found.span.line,
        "startColumn": found.span.column,
        "endLine": found.span.end_line,
        "endColumn": found.span.end_column,
    }
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(item.file)}, "region": region}
    }
    if found.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": found.pointer}]
    return {
        "ruleId": found.code,
        "ruleIndex": index,
        "level": found.severity,
        "message": {"text": words(found)},
        "locations": [location],
    }


def _uri(file: str) -> str:
    """A file name as a reference; a relative one stays relative to the caller's folder."""
    name = quote(file.removeprefix("./"), safe="/", errors="surrogateescape")
    return f"file://{name}" if name.startswith("/") else name
