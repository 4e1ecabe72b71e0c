"""Runs SQL on a DuckLake: tables of files in an object store, listed in a metadata database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.tasks import Ducklake
from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError
from noetl.tools.duckdb.grants import (
    EXTENSION,
    Grants,
    connection_fields,
    connection_words,
    granted,
    is_object,
)
from noetl.tools.duckdb.tool import DuckdbTool

if TYPE_CHECKING:
    from noetl.dsl.tasks import Duckdb
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

CATALOGS: Final = ("postgres", "mysql", "sqlite")
_FILE: Final = ".ducklake"


class DucklakeTool(DuckdbTool):
    """The kind `ducklake`."""

    kind: ClassVar[str] = "ducklake"
    Config: ClassVar[type[Task]] = Ducklake

    async def granted(self, config: Duckdb, texts: list[str], ctx: ToolContext) -> Grants:
        """What the task may reach: its lake, and what `auth` names."""
        if not isinstance(config, Ducklake):
            raise TypeError("a lake needs the keys of a lake")
        is_remote = is_object(str(config.data_path))
        found = await granted(config.auth, ctx, in_sql=is_remote)
        made = found if is_remote else await super().granted(config, texts, ctx)
        made.needs("ducklake")
        options: dict[str, Any] = {"data_path": self._data_path(config, made)}
        if config.snapshot_version is not None:
            options["snapshot_version"] = _version(config.snapshot_version)
        path = await self._catalog(config, made, options, ctx)
        is_old = config.snapshot_version is not None
        made.attach.append(
            {"path": path, "name": config.lake, "read_only": is_old, "options": options,
             "kind": "ducklake"}
        )  # fmt: skip
        made.use = config.lake
        return made

    def _data_path(self, config: Ducklake, made: Grants) -> str:
        """Where the files of the lake lie; the statements may reach it."""
        given = str(config.data_path)
        if is_object(given):
            made.store_for(given)
            place = given.replace("gcs://", "gs://", 1).rstrip("/") + "/"
            made.remote.append(place)
            return place
        if "://" in given.removeprefix("file://"):
            message = "/data_path: an address of an object store, or a folder under the data roots"
            raise ToolError("config", "invalid_config", message)
        return f"{self.engine.file_of(given)}/"

    async def _catalog(
        self, config: Ducklake, made: Grants, options: dict[str, Any], ctx: ToolContext
    ) -> str:
        """The address of the metadata: a file under the roots, or a database and its secret."""
        given = str(config.catalog)
        if given.startswith("file://") or given.endswith(_FILE):
            return f"ducklake:{self.engine.file_of(given)}"
        fields = await fields_of(given, ctx, types=CATALOGS, where="/catalog")
        kind = str(fields["type"])
        made.needs(EXTENSION[kind])
        if kind == "sqlite":
            path = self.engine.file_of(str(fields.get("path") or fields.get("database") or ""))
            return f"ducklake:sqlite:{path}"
        name = f"{config.lake}_catalog"
        made.secrets.append({"name": name, "type": kind, "fields": connection_fields(fields)})
        options["meta_secret"] = name
        return f"ducklake:{kind}:{connection_words(fields)}"


def _version(given: Any) -> int:  # noqa: ANN401 - a number, or its text
    try:
        return int(given)
    except ValueError:
        message = "/snapshot_version: is no number"
        raise ToolError("config", "invalid_config", message) from None
