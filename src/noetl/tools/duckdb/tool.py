"""Runs SQL on DuckDB, in memory or on files under the data roots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakValueDictionary

from noetl.dsl.tasks import Duckdb
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.duckdb.children import Children
from noetl.tools.python import source_of
from noetl.tools.roots import inside, place_for
from noetl.tools.stored import put_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.duckdb.children import Child

MEMORY: Final = ":memory:"
EXTENSIONS: Final = frozenset(
    {"autocomplete", "core_functions", "excel", "fts", "icu", "inet", "json", "parquet", "spatial",
     "sqlite", "tpcds", "tpch", "vss"}
)  # fmt: skip
MEDIA: Final = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "json": "application/x-ndjson",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_MARGIN_S: Final = 0.05  # a wait for a file ends before the deadline of its task does


@dataclass(frozen=True, slots=True, kw_only=True)
class _Export:
    """Where the last query goes: a file under the roots, or the blobs."""

    format: str
    path: Path | None


class DuckdbTool:
    """The kind `duckdb`."""

    kind: ClassVar[str] = "duckdb"
    Config: ClassVar[type[Task]] = Duckdb
    traits: ClassVar[Traits] = Traits(extra="duckdb")

    def __init__(self, roots: tuple[Path, ...], extensions: frozenset[str] = EXTENSIONS) -> None:
        self._roots = roots
        self._extensions = extensions
        self._children = Children()
        self._writers: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def run(self, config: Duckdb, ctx: ToolContext) -> Outcome:
        """Run the statements as one transaction; the data belongs to the last that had rows."""
        if config.auth is not None:
            message = "/auth: this worker attaches no remote databases yet"
            raise ToolError("config", "unsupported_auth", message)
        job = await self._job(config, ctx)
        export = self._export(config, ctx)
        files = [] if job["database"] == MEMORY else [Path(job["database"])]
        files += [Path(item["path"]) for item in job["attach"] if not item["read_only"]]
        async with self._writer(files, ctx):
            child = await self._children.take()
            try:
                return await self._run(child, job, export, ctx)
            finally:
                await self._children.give(child)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its child."""

    async def close(self) -> None:
        """End the children that wait for work."""
        await self._children.close()

    async def _job(self, config: Duckdb, ctx: ToolContext) -> dict[str, Any]:
        """What the child is told, but for its folder."""
        foreign = sorted(set(config.extensions) - self._extensions)
        if foreign:
            message = f"/extensions: {', '.join(foreign)} is not allowed here"
            raise ToolError("config", "extension_denied", message)
        if isinstance(config.params, str):
            raise ToolError("config", "invalid_config", "/params: must be a list or a map")
        limit = config.memory_limit
        database = str(config.database)
        if database != MEMORY:
            database = str(place_for(database, self._roots))
        return {
            "database": database,
            "texts": await _texts(config, ctx),
            "params": config.params,
            "attach": [self._attached(item) for item in _listed(config.attach)],
            "extensions": list(config.extensions),
            "roots": [str(root.resolve()) for root in self._roots],
            "memory_limit": f"{limit}B" if isinstance(limit, int) else str(limit),
            "threads": int(config.threads),
            "as_objects": config.as_objects,
            "max_rows": int(config.max_rows),
            "max_bytes": int(config.max_bytes),
        }

    def _attached(self, item: Mapping[str, Any]) -> dict[str, Any]:
        path = item.get("path") or item.get("database") or item.get("uri")
        if not isinstance(path, str) or "://" in path.removeprefix("file://"):
            raise ToolError("config", "invalid_config", "/attach: only files can be attached")
        path = path.removeprefix("file://")
        name = item.get("as") or item.get("name") or item.get("alias") or Path(path).stem
        return {
            "path": str(place_for(path, self._roots)),
            "name": str(name),
            "read_only": bool(item.get("read_only", False)),
        }

    def _export(self, config: Duckdb, ctx: ToolContext) -> _Export | None:
        given = config.export
        if given is None:
            return None
        form, to = str(given.get("format") or "parquet"), str(given.get("to") or "blob")
        if form not in MEDIA or given.keys() - {"format", "to"}:
            message = f"/export: takes `format` ({', '.join(MEDIA)}) and `to`"
            raise ToolError("config", "invalid_config", message)
        if to == "blob":
            if ctx.blobs is None:
                raise ToolError("config", "no_blobs", "/export/to: there is no blob store")
            return _Export(format=form, path=None)
        if "://" in to.removeprefix("file://"):
            message = "/export/to: must be `blob`, or a file under the data roots"
            raise ToolError("config", "invalid_config", message)
        return _Export(format=form, path=place_for(to.removeprefix("file://"), self._roots))

    async def _run(
        self, child: Child, job: dict[str, Any], export: _Export | None, ctx: ToolContext
    ) -> Outcome:
        scratch = child.scratch
        target = None
        if export is not None:
            target = export.path or scratch / f"export.{export.format}"
        told = {
            **job,
            "scratch": str(scratch),
            "spill": None if ctx.blobs is None else str(scratch),
            "export": target and export and {"format": export.format, "path": str(target)},
        }
        data = (await self._children.run(child, told)).data
        ref = await _spilled(data, scratch, ctx)
        if export is not None and target is not None:
            data["export"], ref = await _exported(export, target, ctx)
        return Outcome(data=data, ref=ref)

    @asynccontextmanager
    async def _writer(self, files: list[Path], ctx: ToolContext) -> AsyncIterator[None]:
        """One writer per file; who waits too long is told that the file was busy."""
        deadline = None if ctx.deadline is None else ctx.deadline - _MARGIN_S
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout_at(deadline):
                    for path in sorted(set(files)):
                        lock = self._writers.setdefault(path, asyncio.Lock())
                        await held.enter_async_context(lock)
            except TimeoutError:
                message = "another task writes to the file"
                raise ToolError("db_timeout", "database_locked", message) from None
            yield


async def _spilled(data: dict[str, Any], scratch: Path, ctx: ToolContext) -> str | None:
    """Move results that were too large to the blobs; the reference of the one on top."""
    moved: dict[str, dict[str, Any]] = {}
    for part in (data, *(part for name, part in data.items() if name.startswith("command_"))):
        path = part.pop("file", None)
        if path is None:
            continue
        if path not in moved:
            moved[path] = await put_file(inside(path, (scratch,)), MEDIA["parquet"], ctx)
        part["ref"] = moved[path]["ref"]
    ref: str | None = data.get("ref")
    return ref


async def _exported(
    export: _Export, target: Path, ctx: ToolContext
) -> tuple[dict[str, Any], str | None]:
    if export.path is not None:
        size = (await asyncio.to_thread(target.stat)).st_size
        return {"format": export.format, "to": export.path.as_uri(), "bytes": size}, None
    stored = await put_file(target, MEDIA[export.format], ctx)
    return {"format": export.format, "to": "blob", **stored}, stored["ref"]


async def _texts(config: Duckdb, ctx: ToolContext) -> list[str]:
    texts: list[str] = []
    if config.command is not None:
        texts += [config.command] if isinstance(config.command, str) else list(config.command)
    texts += config.commands
    if config.script is not None:
        texts.append(await source_of(None, None, config.script, ctx))
    return texts


def _listed(attach: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - a list of paths or maps, or a map by name
    """Databases to attach, each as a map."""
    if attach is None:
        return []
    if isinstance(attach, Mapping):
        return [
            {"as": name, **(item if isinstance(item, Mapping) else {"path": item})}
            for name, item in attach.items()
        ]
    return [item if isinstance(item, Mapping) else {"path": item} for item in attach]
