"""Answers of HTTP servers as a source, asked for by the tool of that kind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noetl.blobs.base import Stat
from noetl.dsl.tasks import Http
from noetl.tools.base import ToolError, read_config
from noetl.tools.transfer.files import format_of
from noetl.tools.transfer.files import read as read_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterable
    from pathlib import Path

    from noetl.dsl.tasks.data import TransferSource
    from noetl.tools.http.tool import HttpTool
    from noetl.tools.transfer.plan import Source
    from noetl.tools.transfer.work import Work


class _Landing:
    """Takes the body of an answer where blobs are expected, and puts it into a file."""

    name = "transfer"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def put_stream(self, key: str, chunks: AsyncIterable[bytes], *, media_type: str) -> Stat:
        """Write the body."""
        size = 0
        with self._path.open("wb") as file:
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
                size += len(chunk)
        return Stat(key=key, size=size, sha256="", media_type=media_type)


async def read(
    tool: HttpTool,
    source: TransferSource,
    auth: Any,  # noqa: ANN401 - an alias or a map
    work: Work,
) -> Source:
    """The rows of an answer; its guard, redirects and credentials are those of `http`."""
    path = work.folder / "source"
    asked: dict[str, Any] = {
        "kind": "http", "url": source.url, "method": source.method or "GET",
        "headers": source.headers, "params": source.params, "auth": auth,
        "response_type": "blob",
    }  # fmt: skip
    config = read_config(Http, {name: value for name, value in asked.items() if value})
    outcome = await tool.run(config, replace(work.ctx, blobs=_Landing(path)))
    if outcome.status != "ok":
        error = dict(outcome.error or {})
        raise ToolError(
            error.get("kind", "unknown"), error.get("code", "unknown"), error.get("message", ""),
            retryable=error.get("retryable"), status_code=error.get("status_code"),
            retry_after_s=error.get("retry_after_s"), details=error.get("details"),
        )  # fmt: skip
    answer: Any = outcome.data
    media = str(answer["body"].get("content_type", ""))
    form = format_of(source.format, str(source.url), media, otherwise="json")
    return read_file(path, form, source.data_path, work.plan)
