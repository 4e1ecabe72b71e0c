"""The table of kinds: built-ins, and plug-ins from entry points of group `noetl.tools`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from noetl.clock import SystemClock
from noetl.dsl.tasks.task import Task
from noetl.tools.agent import AgentTool
from noetl.tools.artifact import ArtifactTool, ResultFetchTool
from noetl.tools.base import Tool, Traits
from noetl.tools.container.tool import ContainerTool, Site
from noetl.tools.duckdb.ducklake import DucklakeTool
from noetl.tools.duckdb.engine import Engine
from noetl.tools.duckdb.tool import DuckdbTool
from noetl.tools.gateway import GatewayTool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from noetl.tools.http.tool import HttpTool
from noetl.tools.mcp.places import Known
from noetl.tools.mcp.tool import McpTool
from noetl.tools.nats.connections import Connections
from noetl.tools.nats.tool import NatsTool
from noetl.tools.noop import NoopTool
from noetl.tools.objects.tool import GcsTool, S3Tool
from noetl.tools.playbook import PlaybooksTool, PlaybookTool
from noetl.tools.postgres.tool import PostgresTool
from noetl.tools.python import PythonTool
from noetl.tools.script import ScriptTool
from noetl.tools.secrets import SecretsTool
from noetl.tools.shell import ShellTool
from noetl.tools.snowflake.tool import SnowflakeTool
from noetl.tools.sqlite import SqliteTool
from noetl.tools.subscription.tool import SubscriptionTool
from noetl.tools.transfer.sides import Sides
from noetl.tools.transfer.tool import SnowflakeTransferTool, TransferTool
from noetl.tools.wait import WaitTool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from noetl.clock import Clock
    from noetl.tools.interpreter.pool import Interpreters
    from noetl.tools.interpreter.process import Processes
    from noetl.tools.subscription.spools import Spools

GROUP: Final = "noetl.tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the built-in tools are made of."""

    interpreters: Interpreters
    processes: Processes
    data_roots: tuple[Path, ...] = ()
    shell: bool = True
    egress: Egress = field(default_factory=Egress)
    site: Site = field(default_factory=Site)
    mcp: Known = field(default_factory=Known)
    clock: Clock = field(default_factory=SystemClock)
    spools: Spools | None = None
    """Where messages of subscriptions wait between two ticks."""
    pubsub_emulator: str = ""
    """Where an emulator of Pub/Sub listens."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Every kind that this process can run, and the plug-ins that it cannot."""

    tools: Mapping[str, Tool]
    failed: Mapping[str, str] = field(default_factory=dict)

    async def close(self) -> None:
        """Close the connections and end the children that tools keep between tasks."""
        for tool in self.tools.values():
            close = getattr(tool, "close", None)
            if close is not None:
                await close()


def builtins(parts: Parts) -> dict[str, Tool]:
    """The kinds that come with NoETL."""
    brokers = Connections(Guard(egress=parts.egress))
    duckdb = Engine(parts.data_roots)
    http = HttpTool(parts.egress, parts.clock, roots=parts.data_roots)
    sides = Sides(duckdb=duckdb, http=http)
    container = ContainerTool(parts.site, parts.processes, parts.clock)
    made: list[Tool] = [
        PythonTool(parts.interpreters),
        ShellTool(parts.processes, is_on=parts.shell),
        ScriptTool(parts.processes, container, is_shell_on=parts.shell),
        NoopTool(),
        SqliteTool(parts.data_roots),
        PostgresTool(),
        DuckdbTool(parts.data_roots, engine=duckdb),
        DucklakeTool(parts.data_roots, engine=duckdb),
        SnowflakeTool(),
        TransferTool(sides, parts.clock),
        SnowflakeTransferTool(sides, parts.clock),
        http,
        S3Tool(parts.data_roots),
        GcsTool(parts.data_roots),
        ArtifactTool(parts.data_roots, brokers),
        ResultFetchTool(),
        PlaybookTool(),
        PlaybooksTool(),
        NatsTool(brokers, parts.clock),
        SubscriptionTool(brokers, parts.clock, emulator=parts.pubsub_emulator, spools=parts.spools),
        AgentTool(parts.interpreters),
        McpTool(Guard(egress=parts.egress), parts.processes, parts.mcp),
        SecretsTool(),
        GatewayTool(Fetcher(Guard(egress=parts.egress)), parts.clock),
        WaitTool(parts.clock),
        container,
    ]
    return {tool.kind: tool for tool in made}


def with_plugins(known: Mapping[str, Tool], found: Iterable[EntryPoint] | None = None) -> Registry:
    """The built-ins and the plug-ins; a bad plug-in is listed, never fatal."""
    tools = dict(known)
    failed: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP) if found is None else found, key=str):
        try:
            tool = _made(entry.load())
        except Exception as fault:  # noqa: BLE001 - a plug-in may raise anything when it is imported
            failed[entry.name] = f"{type(fault).__name__}: {fault}"
            continue
        if tool.kind in tools:
            failed[entry.name] = f"the kind {tool.kind} exists already"
        else:
            tools[tool.kind] = tool
    return Registry(tools, failed)


def _made(cls: Any) -> Tool:  # noqa: ANN401 - what the entry point names
    """An instance of a tool class that keeps the protocol."""
    if not inspect.isclass(cls):
        raise TypeError("the entry point is not a class")
    for name, kind in (("kind", str), ("traits", Traits)):
        if not isinstance(getattr(cls, name, None), kind):
            raise TypeError(f"`{name}` must be {kind.__name__}")
    config = getattr(cls, "Config", None)
    if not (inspect.isclass(config) and issubclass(config, Task)):
        raise TypeError("`Config` must be a model of noetl.dsl.tasks")
    for name in ("run", "cancel"):
        if not inspect.iscoroutinefunction(getattr(cls, name, None)):
            raise TypeError(f"`{name}` must be an async method")
    tool = cls()
    if not isinstance(tool, Tool):
        raise TypeError("the class is no tool")
    return tool
