"""The tool kinds: which keys each one takes, which of them it needs, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.tasks.calls import (
    Gateway,
    Http,
    Mcp,
    Nats,
    Noop,
    PlaybookCall,
    Playbooks,
    Plugin,
    Secrets,
    Subscription,
    Wait,
)
from noetl.dsl.tasks.data import (
    Artifact,
    Duckdb,
    Ducklake,
    Objects,
    Postgres,
    ResultFetch,
    Snowflake,
    Sqlite,
    Transfer,
)
from noetl.dsl.tasks.process import Agent, Container, Python, ScriptTask, Shell, Wasm

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task

KINDS: dict[str, type[Task]] = {
    "python": Python, "http": Http, "postgres": Postgres, "sqlite": Sqlite, "duckdb": Duckdb,
    "ducklake": Ducklake, "snowflake": Snowflake, "transfer": Transfer,
    "snowflake_transfer": Transfer, "nats": Nats, "shell": Shell, "script": ScriptTask,
    "container": Container, "playbook": PlaybookCall, "playbooks": Playbooks,
    "subscription": Subscription, "artifact": Artifact, "result_fetch": ResultFetch,
    "secrets": Secrets, "gcs": Objects, "s3": Objects, "mcp": Mcp, "agent": Agent, "wasm": Wasm,
    "gateway": Gateway, "wait": Wait, "noop": Noop,
}  # fmt: skip
REFUSED_KINDS = {
    "rhai": "use `python`",
    "iterator": "use `loop` on the step",
    "sink": "write with a task of its own, for example `postgres`",
    "provider": "use `http`, `mcp` or `agent`",
}
NETWORK_KINDS = frozenset({
    "http", "mcp", "container", "transfer", "snowflake_transfer", "snowflake", "postgres",
    "ducklake", "s3", "gcs", "nats", "agent",
})  # fmt: skip
ENGINE_KINDS = frozenset({"playbook", "playbooks", "wait", "noop"})

__all__ = [
    "ENGINE_KINDS",
    "KINDS",
    "NETWORK_KINDS",
    "REFUSED_KINDS",
    "Agent",
    "Artifact",
    "Container",
    "Duckdb",
    "Ducklake",
    "Gateway",
    "Http",
    "Mcp",
    "Nats",
    "Noop",
    "Objects",
    "PlaybookCall",
    "Playbooks",
    "Plugin",
    "Postgres",
    "Python",
    "ResultFetch",
    "ScriptTask",
    "Secrets",
    "Shell",
    "Snowflake",
    "Sqlite",
    "Subscription",
    "Transfer",
    "Wait",
    "Wasm",
]
