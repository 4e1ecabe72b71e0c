"""The results of tests as JUnit XML, the form that build servers read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from noetl.cli.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.local.verdicts import Verdict


def junit(suites: Iterable[tuple[str, Sequence[Verdict]]]) -> str:
    """One suite per file, one case per case; a failure carries its sentences."""
    root = Element("testsuites")
    for name, verdicts in suites:
        suite = SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(verdicts)),
            failures=str(sum(1 for verdict in verdicts if not verdict.is_passed)),
            time=_seconds(sum(verdict.duration_ms for verdict in verdicts)),
        )
        for verdict in verdicts:
            case = SubElement(
                suite,
                "testcase",
                classname=name,
                name=visible(verdict.name),
                time=_seconds(verdict.duration_ms),
            )
            if not verdict.is_passed:
                failure = SubElement(case, "failure", message=visible(verdict.faults[0]))
                failure.text = "\n".join(visible(fault) for fault in verdict.faults)
    indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    return f"{head}{tostring(root, encoding='unicode')}\n"


def _seconds(ms: float) -> str:
    return f"{ms / 1000:.3f}"
