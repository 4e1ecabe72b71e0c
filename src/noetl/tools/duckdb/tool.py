"""Runs SQL on DuckDB, in memory or on files under the data roots."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.tasks import Duckdb
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.duckdb.door import Door
from noetl.tools.duckdb.engine import MEMORY, Engine
from noetl.tools.duckdb.grants import OBJECTS, Grants, format_of, granted, is_object
from noetl.tools.duckdb.objects import fetched, sent
from noetl.tools.objects.store import stores_of
from noetl.tools.python import source_of
from noetl.tools.roots import inside, place_for
from noetl.tools.stored import put_file

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.duckdb.children import Child

EXTENSIONS: Final = frozenset(
    {"autocomplete", "core_functions", "excel", "fts", "icu", "inet", "json", "parquet", "spatial",
     "tpcds", "tpch", "vss"}
)  # fmt: skip
"""What an author may load by name; what reaches other places comes with a key that grants it."""
MEDIA: Final = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "json": "application/x-ndjson",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_OBJECTS: Final = re.compile(r"['\"](?:s3|gs|gcs)://", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Export:
    """Where the last query goes: a file under the roots, an object, or the blobs."""

    format: str
    path: Path | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A job, and what is done for it outside of the child."""

    job: dict[str, Any]
    grants: Grants
    objects: list[dict[str, Any]]
    export: _Export | None


class DuckdbTool:
    """The kind `duckdb`."""

    kind: ClassVar[str] = "duckdb"
    Config: ClassVar[type[Task]] = Duckdb
    traits: ClassVar[Traits] = Traits(extra="duckdb")

    def __init__(
        self,
        roots: tuple[Path, ...],
        extensions: frozenset[str] = EXTENSIONS,
        engine: Engine | None = None,
    ) -> None:
        self._roots = roots
        self._extensions = extensions
        self.engine = engine or Engine(roots)

    async def run(self, config: Duckdb, ctx: ToolContext) -> Outcome:
        """Run the statements as one transaction; the data belongs to the last that had rows."""
        asked = await self._asked(config, ctx)
        job = asked.job
        files = [] if job["database"] == MEMORY else [Path(job["database"])]
        files += [
            Path(item["path"])
            for item in job["attach"]
            if not item["read_only"] and item.get("kind", "duckdb") in {"duckdb", "sqlite"}
        ]
        async with self.engine.writer(files, ctx), self.engine.child() as child:
            return await self._run(child, asked, ctx)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its child."""

    async def close(self) -> None:
        """End the children that wait for work."""
        await self.engine.close()

    async def granted(self, config: Duckdb, texts: list[str], ctx: ToolContext) -> Grants:
        """What the task may reach besides files under the roots."""
        in_sql = any(_OBJECTS.search(text) for text in texts)
        made = await granted(config.auth, ctx, in_sql=in_sql)
        for item in made.attach:
            if item["kind"] == "sqlite":
                item["path"] = str(self.engine.file_of(item["path"]))
        return made

    async def _asked(self, config: Duckdb, ctx: ToolContext) -> _Asked:
        if isinstance(config.params, str):
            raise ToolError("config", "invalid_config", "/params: must be a list or a map")
        foreign = sorted(set(config.extensions) - self._extensions)
        if foreign:
            message = (
                f"/extensions: {', '.join(foreign)} is not allowed here;"
                " other databases and object stores are reached through `auth`"
            )
            raise ToolError("config", "extension_denied", message)
        texts = await _texts(config, ctx)
        grants = await self.granted(config, texts, ctx)
        for name in config.extensions:
            grants.needs(name)
        items = _listed(config.attach)
        objects = [self._object(item) for item in items if is_object(_place(item))]
        files = [self._attached(item) for item in items if not is_object(_place(item))]
        export = self._export(config, ctx)
        if export is not None and export.format == "xlsx":
            grants.needs("excel")
        limit = config.memory_limit
        database = str(config.database)
        job = self.engine.job(
            database if database == MEMORY else str(self.engine.file_of(database)),
            texts,
            params=config.params,
            attach=[*files, *grants.attach],
            extensions=grants.extensions,
            secrets=grants.secrets,
            remote=grants.remote,
            use=grants.use,
            memory_limit=f"{limit}B" if isinstance(limit, int) else str(limit),
            threads=int(config.threads),
            as_objects=config.as_objects,
            max_rows=int(config.max_rows),
            max_bytes=int(config.max_bytes),
        )
        return _Asked(job=job, grants=grants, objects=objects, export=export)

    def _attached(self, item: Mapping[str, Any]) -> dict[str, Any]:
        path = _place(item)
        if not path or "://" in path.removeprefix("file://"):
            message = "/attach: a file under the data roots, or an object; a server goes to `auth`"
            raise ToolError("config", "invalid_config", message)
        path = path.removeprefix("file://")
        return {
            "path": str(place_for(path, self._roots)),
            "name": _name(item, path),
            "read_only": bool(item.get("read_only", False)),
        }

    def _object(self, item: Mapping[str, Any]) -> dict[str, Any]:
        uri = _place(item)
        form = str(item.get("format") or format_of(uri) or "")
        if form not in {"parquet", "csv", "json"}:
            message = f"/attach: {uri} has no `format`: parquet, csv or json"
            raise ToolError("config", "invalid_config", message)
        return {"uri": uri, "name": _name(item, uri), "format": form}

    def _export(self, config: Duckdb, ctx: ToolContext) -> _Export | None:
        given = config.export
        if given is None:
            return None
        form, to = given.format, given.to or "blob"
        if to == "blob":
            if ctx.blobs is None:
                raise ToolError("config", "no_blobs", "/export/to: there is no blob store")
            return _Export(format=form)
        if is_object(to):
            return _Export(format=form, uri=to)
        if "://" in to.removeprefix("file://"):
            message = "/export/to: must be `blob`, an object, or a file under the data roots"
            raise ToolError("config", "invalid_config", message)
        return _Export(format=form, path=place_for(to.removeprefix("file://"), self._roots))

    async def _run(self, child: Child, asked: _Asked, ctx: ToolContext) -> Outcome:
        scratch, export = child.scratch, asked.export
        target = None
        if export is not None:
            target = export.path or scratch / f"export.{export.format}"
        views = []
        for number, item in enumerate(asked.objects):
            path = scratch / f"object_{number}.{item['format']}"
            await fetched(item["uri"], asked.grants.store_for(item["uri"]), path, ctx)
            views.append({**item, "path": str(path)})
        job = {
            **asked.job,
            "views": views,
            "spill": None if ctx.blobs is None else str(scratch),
            "export": target and export and {"format": export.format, "path": str(target)},
        }
        data = await self._reaching(child, job, ctx)
        ref = await _spilled(data, scratch, ctx)
        if export is not None and target is not None:
            data["export"], ref = await _exported(export, target, asked.grants, ctx)
        return Outcome(data=data, ref=ref)

    async def _reaching(
        self, child: Child, job: dict[str, Any], ctx: ToolContext
    ) -> dict[str, Any]:
        """The data of a job, whose objects are reached by the rules of this worker."""
        if OBJECTS not in job["extensions"]:
            return await self.engine.run(child, job)
        async with Door(stores_of(ctx).guard) as door:
            proxy = {"address": door.address, "user": door.USER, "password": door.password}
            try:
                return await self.engine.run(child, {**job, "proxy": proxy})
            except ToolError as fault:
                # The library knows only that nobody answered.
                raise door.refusal or fault from None


async def _spilled(data: dict[str, Any], scratch: Path, ctx: ToolContext) -> str | None:
    """Move results that were too large to the blobs; the reference of the one on top."""
    moved: dict[str, dict[str, Any]] = {}
    for part in (data, *(part for name, part in data.items() if name.startswith("command_"))):
        path = part.pop("file", None)
        if path is None:
            continue
        if path not in moved:
            moved[path] = await _stored(inside(path, (scratch,)), "parquet", ctx)
        part["ref"], part["bytes"] = moved[path]["ref"], moved[path]["bytes"]
    ref: str | None = data.get("ref")
    return ref


async def _exported(
    export: _Export, target: Path, grants: Grants, ctx: ToolContext
) -> tuple[dict[str, Any], str | None]:
    size = (await asyncio.to_thread(target.stat)).st_size
    if export.path is not None:
        return {"format": export.format, "to": export.path.as_uri(), "bytes": size}, None
    if export.uri is not None:
        await sent(target, export.uri, grants.store_for(export.uri), ctx)
        return {"format": export.format, "to": export.uri, "bytes": size}, None
    stored = await _stored(target, export.format, ctx)
    return {"format": export.format, "to": "blob", **stored}, stored["ref"]


async def _stored(path: Path, form: str, ctx: ToolContext) -> dict[str, Any]:
    """Store what the child wrote, without secrets in its texts."""
    clean = None
    if form == "parquet" and ctx.redactor.cover() is not None:
        from noetl.tools.tabular.texts import cleaned  # noqa: PLC0415 - few results need it

        clean = await asyncio.to_thread(cleaned, path, ctx.redactor)
    return await put_file(clean or path, MEDIA[form], ctx)


async def _texts(config: Duckdb, ctx: ToolContext) -> list[str]:
    texts: list[str] = []
    if config.command is not None:
        texts += [config.command] if isinstance(config.command, str) else list(config.command)
    texts += config.commands
    if config.script is not None:
        texts.append(await source_of(None, None, config.script, ctx))
    return texts


def _place(item: Mapping[str, Any]) -> str:
    found = item.get("path") or item.get("database") or item.get("uri")
    return found if isinstance(found, str) else ""


def _name(item: Mapping[str, Any], path: str) -> str:
    return str(item.get("as") or item.get("name") or item.get("alias") or Path(path).stem)


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
