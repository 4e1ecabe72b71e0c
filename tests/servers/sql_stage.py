"""A postgres tool on a database of a test, with a credential `db` for it."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, unquote, urlsplit

from noetl.blobs.memory import MemoryBlobs
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.postgres.pools import Pools
from noetl.tools.postgres.tool import PostgresTool


def fields_of(url):
    parts = urlsplit(url)
    where = parse_qs(parts.query)
    return {
        "host": where["host"][0] if where else parts.hostname,
        "port": int(where["port"][0]) if where else parts.port,
        "user": parts.username,
        "password": unquote(parts.password),
        "database": parts.path.removeprefix("/"),
    }


EMPTY = "drop schema public cascade; create schema public"


class Stage:
    """A tool, and a credential `db` for a database."""

    def __init__(self, url, **pools):
        self.url = url
        self.fields = fields_of(url)
        self.tool = PostgresTool(Pools(**pools))
        self.blobs = MemoryBlobs()
        self.lines = []
        self.asked = []

    async def secrets(self, name):
        self.asked.append(name)
        return {"db": {"type": "postgres", "data": self.fields}}[name]

    def context(self, within=20):
        return ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", blobs=self.blobs,
            deadline=asyncio.get_running_loop().time() + within, secrets=self.secrets,
            on_log=lambda *line: self.lines.append(line),
            redactor=Redactor([self.fields["password"]]),
        )  # fmt: skip

    async def sql(self, command=None, *, within=20, **config):
        text = {} if command is None else {"command": command}
        config = {"kind": "postgres", "auth": "db", **text, **config}
        return await run_tool(self.tool, config, self.context(within))

    async def rows(self, command, **config):
        outcome = await self.sql(command, **config)
        assert outcome.error is None, outcome.error
        return outcome.data["rows"]

    async def emptied(self):
        """Leave nothing of an earlier test in the database."""
        assert (await self.sql(EMPTY)).error is None
        await self.settled()
        self.lines.clear()

    async def settled(self):
        """Wait until every connection was given back."""
        await self.tool.pools.settled()
