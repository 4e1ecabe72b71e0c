"""Every code that the source uses stands in a table, and so on a page."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from noetl.api.codes import PROBLEMS
from noetl.api.failures import PATTERNS, PROCESSES, RUNS
from noetl.cli.failures import FAILURES
from noetl.dsl.codes import CODES
from noetl.dsl.tasks.errors import ERROR_KINDS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "noetl"
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.]+\Z")
REASONS = ("engine/why.py", "server/reading/why.py", "server/reading/causes.py")
"""Files whose codes say why a run waits: no errors."""
RAISED = ("ToolError", "Died", "Failure", "SourceError")
TASKS = ("tools/", "engine/", "server/fleet/containers.py")
"""Where rows of a table tell kinds and codes of errors."""
TABLES = ("api/codes.py", "api/failures.py")
OTHER = {
    "conflict": "the code of a class that is always raised with another",
    "warning": "of a dry run, which goes well",
    "no_free_slot": "why a claim, which goes well, has left a command out",
}
KNOWN = {*PROBLEMS, *RUNS, *PROCESSES, *FAILURES, *CODES, *OTHER}
LATER = {
    "not_compilable", "not_overridable",
    "plugin_invalid", "reserved_tool_kind",
}  # fmt: skip
"""Codes of parts that are not built yet; they are part of the contract."""


def text_of(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def choices(node: ast.AST | None) -> list[str]:
    """Texts that an expression may be: itself, or the branches of a condition."""
    if isinstance(node, ast.IfExp):
        return [*choices(node.body), *choices(node.orelse)]
    return [text_of(node)]


def codes_of(node: ast.AST, name: str) -> list[str]:
    """Codes that a piece of source names."""
    if isinstance(node, ast.keyword) and node.arg == "code":
        return choices(node.value)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "code" for target in targets):
            return choices(node.value)
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [one for key, value in pairs if text_of(key) == "code" for one in choices(value)]
    if isinstance(node, ast.Tuple) and not name.startswith(TASKS):
        return []
    # A kind of error is followed by its code: `ToolError("limit", "row_limit", ...)`.
    return [
        text_of(second)
        for first, second in pairwise(_row(node))
        if text_of(first) in ERROR_KINDS and text_of(second) not in ERROR_KINDS
    ]


def _row(node: ast.AST) -> list[ast.expr]:
    """The values of a row that may tell an error: kind, code, and more."""
    if isinstance(node, ast.Tuple):
        return node.elts
    of = getattr(node, "func", None)
    called = getattr(of, "id", getattr(of, "attr", ""))
    return node.args if isinstance(node, ast.Call) and called in RAISED else []


def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
    }


def is_known(code: str) -> bool:
    return code in KNOWN or any(code.startswith(pattern[:-1]) for pattern in PATTERNS)


def test_every_code_of_the_source_stands_in_a_table():
    used = {
        code: name
        for name, tree in trees().items()
        if name not in (*REASONS, *TABLES)
        for node in ast.walk(tree)
        for code in codes_of(node, name)
        if CODE.match(code)
    }
    assert {code: name for code, name in used.items() if not is_known(code)} == {}
    assert len(used) > 150


def test_every_code_of_the_tables_is_used():
    texts = {
        text_of(node)
        for name, tree in trees().items()
        if name not in TABLES
        for node in ast.walk(tree)
    }
    assert {code for code in (*PROBLEMS, *RUNS, *PROCESSES) if code not in texts} == LATER


@pytest.mark.parametrize("code", [*PROBLEMS, *RUNS, *PROCESSES, *PATTERNS, *FAILURES])
def test_every_code_stands_on_the_page_of_errors(code):
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert f"`{code}`" in page


@pytest.mark.parametrize(("code", "known"), [*RUNS.items(), *PROCESSES.items()])
def test_every_code_says_what_it_means_and_what_to_do(code, known):
    assert known.meaning.endswith("."), code
    assert known.remedy.endswith("."), code
