"""Stored objects as tasks: results by reference, files, objects of buckets and of brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from noetl.dsl.tasks import Artifact
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.places import Files, Runs
from noetl.tools.result_fetch import ResultFetchTool

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.nats.connections import Connections
    from noetl.tools.places import Place

__all__ = ["ArtifactTool", "ResultFetchTool"]

_REFS: Final = "noetl"
_FILES: Final = "file"
_OBJECTS: Final = frozenset({"s3", "gs"})
_BROKERS: Final = frozenset({"nats-kv", "nats-obj"})


class ArtifactTool:
    """The kind `artifact`."""

    kind: ClassVar[str] = "artifact"
    Config: ClassVar[type[Task]] = Artifact
    traits: ClassVar[Traits] = Traits()

    def __init__(self, roots: tuple[Path, ...], connections: Connections | None = None) -> None:
        """Files lie under `roots`; keys and objects of brokers are reached by `connections`."""
        self._roots = roots
        self._connections = connections

    async def run(self, config: Artifact, ctx: ToolContext) -> Outcome:
        """Do what `action` says with the object that the input names."""
        uri = _uri_of(ctx.input)
        place = self._place(urlsplit(uri).scheme if uri else _REFS, config, ctx)
        data = await getattr(place, f"do_{config.action}")(uri, ctx.input)
        return Outcome(data={"action": config.action, **data})

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing outlives the task."""

    def _place(self, scheme: str, config: Artifact, ctx: ToolContext) -> Place:
        if scheme == _REFS:
            return Runs(ctx)
        if scheme == _FILES:
            return Files(ctx, self._roots)
        if scheme in _OBJECTS:
            from noetl.tools.objects.place import ObjectPlace  # noqa: PLC0415 - most have none

            return ObjectPlace(ctx, config.auth)
        if scheme in _BROKERS and self._connections is not None:
            from noetl.tools.nats.artifacts import KeyPlace, StorePlace  # noqa: PLC0415 - as above

            kind = KeyPlace if scheme == "nats-kv" else StorePlace
            return kind(ctx, config.auth, self._connections)
        message = f"/input/uri: {scheme[:20]} is no scheme of an artifact"
        raise ToolError("config", "unsupported_scheme", message)


def _uri_of(given: Mapping[str, Any]) -> str:
    """The name of the object: a text, or a map that has one, such as a result's own."""
    for name in ("uri", "result_ref", "ref"):
        found = given.get(name)
        if isinstance(found, Mapping):
            found = found.get("ref") or found.get("_ref") or found.get("uri")
        if found:
            return str(found)
    return ""
