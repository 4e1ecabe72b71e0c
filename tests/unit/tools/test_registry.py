"""Kinds come from a table and from plug-ins; a bad plug-in is listed, never fatal."""

from __future__ import annotations

from typing import ClassVar

from noetl.dsl.tasks import Noop, Plugin
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
    assert sorted(registry.tools) == [
        "artifact", "duckdb", "http", "noop", "playbook", "playbooks", "python", "result_fetch",
        "shell", "sqlite", "wait",
    ]  # fmt: skip
    assert all(kind == tool.kind for kind, tool in registry.tools.items())
    await registry.close()
    await pool.close()


def test_without_plugins_the_table_is_what_was_given():
    assert with_plugins({}).failed == {}
