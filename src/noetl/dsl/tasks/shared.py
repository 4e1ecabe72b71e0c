"""Shapes and pieces that several kinds of tools share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    AtLeastOne,
    ByType,
    Constraint,
    Data,
    Flag,
    ListOf,
    Model,
    Of,
    Text,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import WORKER
from noetl.dsl.shape.units import Duration
from noetl.dsl.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping


MAP = Data(WORKER, only="map")
ANY = Data(WORKER)
TEXT = Text(WORKER)
FILLED = Text(WORKER, filled=True)
TEXTS = ListOf(TEXT)
ENV = ByType(map=MAP, list=ListOf(MAP))
ROWS = ByType(list=ANY, map=MAP, text=TEXT)


def needed(shape: Any, doc: str, **more: Any) -> Any:  # noqa: ANN401 - forwards to `key`
    """A key that its kind cannot do without."""
    return key(shape, doc, code="DSL051", **more)


@model
class ScriptSource(Model):
    """Where a script's text lies."""

    type: str = key(choice("inline", "file", "http", "gcs", "s3"), "kind of place")
    code: str | None = key(Text(), "the text, when inline", default=None)
    region: str | None = key(TEXT, "region of the bucket", default=None)
    bucket: str | None = key(TEXT, "bucket", default=None)
    endpoint: str | None = key(TEXT, "endpoint of the store", default=None)
    method: str | None = key(Text(), "HTTP method", default=None)
    headers: Mapping[str, Any] = key(MAP, "HTTP headers", default_factory=dict)
    timeout: Any = key(Duration(WORKER), "limit of the fetch", default=None)
    auth: str | None = key(TEXT, "credential alias", default=None, aliases=("credential",))


@model
class Script(Model):
    """A script that is fetched, not written in place."""

    constraints: ClassVar[tuple[Constraint, ...]] = (AtLeastOne(("uri", "source")),)

    uri: str | None = key(TEXT, "where the script lies", default=None)
    source: ScriptSource | None = key(Of(ScriptSource), "how it is read", default=None)
    sha256: str | None = key(Text(pattern="^[0-9a-f]{64}$"), "expected digest", default=None)


@model
class ByteRange(Model):
    """Some of the bytes of an object."""

    offset: int | str = key(whole(0, role=WORKER), "bytes to skip", default=0)
    length: int | str | None = key(whole(1, role=WORKER), "most bytes", default=None)


@model
class Limits(Model):
    """Limits of a child process."""

    memory_mb: int | str = key(whole(16, 65_536, role=WORKER), "memory", default=1024)
    cpu_s: int | str | None = key(whole(1, role=WORKER), "CPU seconds", default=None)
    files: int | str = key(whole(8, 65_536, role=WORKER), "open files", default=256)
    procs: int | str = key(whole(1, 4096, role=WORKER), "processes", default=64)
    disk_mb: int | str = key(whole(1, role=WORKER), "disk", default=512)
    output_mb: int | str = key(whole(1, role=WORKER), "output", default=64)


@model
class Process(Task):
    """Keys of kinds that run a child process."""

    env: Any = key(ENV, "environment of the child", default=None)
    limits: Limits | None = key(Of(Limits), "limits of the child", default=None)
    sandbox: str = key(choice("standard", "strict"), "how far it is shut in", default="standard")
    network: Any = key(
        ByType(text=choice("on", "off"), flag=Flag()), "may it reach the network", default="on"
    )
