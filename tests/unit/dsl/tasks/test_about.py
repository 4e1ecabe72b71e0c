"""The table of kinds is true: what the tools raise is told, and what is told exists."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import noetl.tools
from noetl.dsl.tasks import KINDS
from noetl.dsl.tasks.about import ABOUT, DEFAULT_TIMEOUT_S, About, about
from noetl.dsl.tasks.errors import ERROR_KINDS
from noetl.dsl.tasks.notes import NOTES

TOOLS = Path(noetl.tools.__file__).parent
ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples"
SQL = ("auth.py", "tabular")
FILES = {
    "python": ("python.py",),
    "shell": ("shell.py",),
    "http": ("http", "auth.py"),
    "postgres": ("postgres", *SQL),
    "sqlite": ("sqlite.py", "roots.py", "tabular"),
    "duckdb": ("duckdb", "roots.py", *SQL),
    "ducklake": ("duckdb", "roots.py", *SQL),
    "snowflake": ("snowflake", *SQL),
    "transfer": ("transfer", "duckdb", "postgres", "snowflake", "http", "objects", "auth.py",
                 "roots.py"),
    "nats": ("nats", "auth.py"),
    "subscription": ("subscription.py", "nats/connections.py", "nats/places.py", "auth.py"),
    "container": ("container",),
    "playbook": ("playbook.py",),
    "playbooks": ("playbook.py",),
    "artifact": ("artifact.py", "places.py", "roots.py", "stored.py", "objects", "auth.py"),
    "result_fetch": ("result_fetch.py", "stored.py"),
    "secrets": ("secrets.py",),
    "s3": ("objects", "roots.py", "stored.py", "auth.py"),
    "gcs": ("objects", "roots.py", "stored.py", "auth.py"),
    "mcp": ("mcp", "auth.py"),
    "agent": ("agent.py", "auth.py"),
    "gateway": ("gateway.py", "http/failures.py", "http/fetching.py", "http/transport.py"),
    "wait": ("wait.py",),
    "noop": ("noop.py",),
}  # fmt: skip
"""Where the errors of each kind are made; a script is a shell or a container."""
MAKERS = frozenset({"ToolError", "Failure"})
UNMISTAKABLE = {kind for kind in ERROR_KINDS if "_" in kind} - {"not_found"}
"""Words that mean a kind of error wherever they stand."""


def raised(kind):
    """The kinds of errors that the files of a tool name."""
    found = set()
    for name in FILES[kind]:
        place = TOOLS / name
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and node.value in UNMISTAKABLE:
                    found.add(node.value)
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                if node.func.id in MAKERS and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(node.args[0].value)
    return found


@pytest.mark.parametrize("kind", FILES)
def test_every_error_that_a_tool_makes_is_told(kind):
    assert raised(kind) - set(about(kind).every_error) == set()


def test_every_kind_is_told_and_nothing_else():
    assert ABOUT.keys() | {"snowflake_transfer"} == KINDS.keys()
    assert about("snowflake_transfer") is about("transfer")
    assert about("of_a_plug_in") == About()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_of_a_kind_exists(kind):
    told = about(kind)
    assert set(told.every_error) <= set(ERROR_KINDS)
    assert len(set(told.errors)) == len(told.errors)
    assert len(set(told.every_error)) == len(told.every_error)
    assert told.returns or told.data
    assert not told.example or (EXAMPLES / told.example).is_file()
    assert bool(told.example) == told.is_built


@pytest.mark.parametrize("kind", [kind for kind in KINDS if about(kind).is_built])
def test_the_extra_of_a_kind_is_one_of_the_package(kind):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert about(kind).extra in {"", *extras["optional-dependencies"]}


def test_notes_are_of_kinds():
    assert NOTES.keys() - KINDS.keys() == set()


def test_the_default_timeouts_are_those_of_the_contract():
    other = {kind: about(kind).timeout_s for kind in KINDS
             if about(kind).timeout_s != DEFAULT_TIMEOUT_S}  # fmt: skip
    assert other == {
        "http": 60, "transfer": 1800, "snowflake_transfer": 1800, "nats": 10, "subscription": 25,
        "mcp": 60, "wasm": 10, "container": 3600, "playbook": None, "playbooks": None,
        "wait": None,
    }  # fmt: skip
