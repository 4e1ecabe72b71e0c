"""Kinds come from a table and from plug-ins; a bad plug-in is listed, never fatal."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

from noetl.dsl.tasks import KINDS, Noop, Plugin
from noetl.dsl.tasks.about import about
from noetl.tools.base import Traits
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.noop import NoopTool
from noetl.tools.registry import Parts, builtins, with_plugins


class Good:
    kind: ClassVar[str] = "good"
    Config = Plugin
    traits = Traits()

    async def run(self, config, ctx): ...

    async def cancel(self, ctx): ...


class Taken(Good):
    kind = "noop"


class Shapeless(Good):
    Config = dict


class Sync(Good):
    Config = Noop

    def run(self, config, ctx): ...


class Untitled(Good):
    kind = 3


class Entry:
    """An entry point whose object is at hand."""

    def __init__(self, found):
        self.name = getattr(found, "__name__", "odd")
        self.found = found

    def __str__(self):
        return self.name

    def load(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_good_plugins_join_and_bad_ones_are_listed():
    found = [Entry(one) for one in (Good, Taken, Shapeless, Sync, Untitled, ImportError("no lib"))]
    registry = with_plugins({"noop": NoopTool()}, found)
    assert sorted(registry.tools) == ["good", "noop"]
    assert isinstance(registry.tools["noop"], NoopTool)
    assert registry.failed == {
        "Taken": "the kind noop exists already",
        "Shapeless": "TypeError: `Config` must be a model of noetl.dsl.tasks",
        "Sync": "TypeError: `run` must be an async method",
        "Untitled": "TypeError: `kind` must be str",
        "odd": "ImportError: no lib",
    }


def test_what_is_no_class_is_refused():
    assert with_plugins({}, [Entry(3)]).failed == {
        "odd": "TypeError: the entry point is not a class"
    }


async def test_every_builtin_stands_under_its_own_kind_and_closes():
    sandbox = Sandbox.detect("off")
    pool = Interpreters(sandbox, {}, spares=0)
    registry = with_plugins(builtins(Parts(interpreters=pool, processes=Processes(sandbox, {}))))
    assert registry.tools.keys() == {kind for kind in KINDS if about(kind).is_built}
    assert all(kind == tool.kind for kind, tool in registry.tools.items())
    await registry.close()
    await pool.close()


def test_without_plugins_the_table_is_what_was_given():
    assert with_plugins({}).failed == {}


def test_the_table_of_kinds_brings_no_library_of_others():
    names = ("httpx", "httpcore", "snowflake", "zstandard", "psycopg", "duckdb", "pyarrow", "nats",
             "obstore", "mcp", "kubernetes_asyncio", "cryptography")  # fmt: skip
    code = f"import sys, noetl.tools.registry\nprint([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
