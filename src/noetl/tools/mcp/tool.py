"""The kind `mcp`; the SDK takes a second to import and comes with the first call."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.dsl.tasks import Mcp
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits, missing_extra
from noetl.tools.keeping import IDLE_S, Care, Keeper
from noetl.tools.mcp.places import Known, Way, way_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.client.client import Client

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.http.egress import Guard
    from noetl.tools.interpreter.process import Processes
    from noetl.tools.mcp.session import Session

MOST_PAGES: Final = 100


class McpTool:
    """The kind `mcp`."""

    kind: ClassVar[str] = "mcp"
    Config: ClassVar[type[Task]] = Mcp
    traits: ClassVar[Traits] = Traits(extra="mcp")

    def __init__(
        self, guard: Guard, processes: Processes, known: Known, idle_s: float = IDLE_S
    ) -> None:
        self._guard = guard
        self._processes = processes
        self._known = known
        care = Care(open=self._opened, close=_closed, is_alive=_is_alive)
        self.sessions: Keeper[Way, Session] = Keeper(care, idle_s)
        """Sessions that are open, by the way to their servers."""

    async def run(self, config: Mcp, ctx: ToolContext) -> Outcome:
        """Call one method of the server."""
        ask = _question(config, ctx)
        way = await way_of(config, ctx, self._known)
        if find_spec("mcp") is None:
            raise missing_extra(self.kind, "mcp")
        if config.method == "health":
            return Outcome(data=_told(config, way, await self._greeted(way)))
        async with self.sessions.use(way) as session:
            result = await session.call(ask)
        data = _told(config, way, result)
        if result.get("isError"):
            raise ToolError(
                "provider",
                "mcp_tool_error",
                data["text"] or f"the tool {config.tool} failed",
                details={name: data[name] for name in ("tool", "content", "structured")},
            )
        return Outcome(data=data)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task closes its request; the session stays."""

    async def close(self) -> None:
        """End every session."""
        await self.sessions.close()

    async def _opened(self, way: Way) -> Session:
        module = await asyncio.to_thread(import_module, "noetl.tools.mcp.session")
        made: Session = await module.Session.open(way, self._guard, self._processes)
        return made

    async def _greeted(self, way: Way) -> dict[str, Any]:
        """What a server says of itself to one who comes anew."""
        session = await self._opened(way)
        try:
            client = session.client
            about = client.server_info
            return {
                "protocolVersion": client.protocol_version,
                "serverInfo": None if about is None else _plain(about),
                "capabilities": _plain(client.server_capabilities),
            }
        finally:
            await session.close()


def _question(config: Mcp, ctx: ToolContext) -> Callable[[Client], Awaitable[dict[str, Any]]]:
    """What is asked; a task that lacks something fails before anybody is asked."""
    arguments = _arguments(config.arguments)
    if config.method == "tools/call":
        tool = _needed(config.tool, "tool")
        return lambda client: _call(client, tool, arguments, ctx)
    if config.method == "resources/read":
        uri = _needed(config.uri, "uri")
        return lambda client: _read(client, uri)
    if config.method == "prompts/get":
        prompt = _needed(config.prompt, "prompt")
        texts = {name: _text(value) for name, value in arguments.items()}
        return lambda client: _prompt(client, prompt, texts)
    return _tools


async def _call(
    client: Client, tool: str, arguments: dict[str, Any], ctx: ToolContext
) -> dict[str, Any]:
    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        ctx.progress(100 * progress / total if total else progress, message or "")

    return _plain(await client.call_tool(tool, arguments, progress_callback=on_progress))


async def _read(client: Client, uri: str) -> dict[str, Any]:
    return _plain(await client.read_resource(uri))


async def _prompt(client: Client, prompt: str, texts: dict[str, str]) -> dict[str, Any]:
    return _plain(await client.get_prompt(prompt, texts))


async def _tools(client: Client) -> dict[str, Any]:
    """Every tool of the server, page after page."""
    found: list[Any] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [_plain(tool) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    return {"tools": found}


def _plain(model: Any) -> dict[str, Any]:  # noqa: ANN401 - a model of the SDK
    made: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made


def _told(config: Mcp, way: Way, result: Mapping[str, Any]) -> dict[str, Any]:
    """The data of the task."""
    content = result.get("content") or result.get("contents") or result.get("messages") or []
    return {
        "server": config.server or way.url or way.argv[0],
        "method": config.method,
        "tool": config.tool,
        "text": "\n".join(text for item in content if (text := _text_of(item)) is not None),
        "content": content,
        "structured": result.get("structuredContent"),
        "result": dict(result),
    }


def _text_of(item: Mapping[str, Any]) -> str | None:
    inner = item.get("content") if isinstance(item.get("content"), dict) else item
    text = inner.get("text") if isinstance(inner, dict) else None
    return text if isinstance(text, str) else None


def _arguments(given: Any) -> dict[str, Any]:  # noqa: ANN401 - a map or JSON text
    if given is None or given == "":
        return {}
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as fault:
            raise _invalid("arguments", f"is not JSON: {fault}; write a map") from None
    if not isinstance(given, dict):
        raise _invalid("arguments", "is a map, or the JSON text of one")
    return given


def _needed(text: str | None, field: str) -> str:
    if not text:
        raise _invalid(field, "is needed by this method")
    return text


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _invalid(field: str, said: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/{field}: {said}")


def _is_alive(session: Session) -> bool:
    return session.is_alive


async def _closed(session: Session) -> None:
    await session.close()
