"""How the result of a step is kept: what its author wishes (`output`), made plain.

A result up to `inline_max_bytes` stands in its event. The store is for larger ones: `kv` and `db`
are rows of the server, `object` and `disk` its object store, `s3` and `gcs` a bucket of the
author's own. With `eventlog` there is none: a larger result fails its step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from noetl.api.results import INLINE_BYTES
from noetl.engine.config import Unrendered, duration
from noetl.tools.base import ToolError
from noetl.tools.objects.kept import SCHEMES, Bucket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.blobs.packing import Packing
    from noetl.dsl.playbook import Step
    from noetl.dsl.tasks.task import Output
    from noetl.engine.pipeline import Pipeline

TIERS: Final = {"kv": "row", "db": "row", "object": "object", "disk": "object"}
_PREVIEW: Final = 1024
"""What a preview has when nobody says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is to be done with a result."""

    inline_bytes: int = INLINE_BYTES
    wishes: Mapping[str, Any] = field(default_factory=dict)
    """What the server is told about a value that it keeps."""
    stays_inline: bool = False
    bucket: Bucket | None = None
    name: str = ""
    """What the author calls it; the step's name without one."""


def output_of(step: Step, results: Output | None = None) -> Output | None:
    """How the result of a step is kept: its own wish, that of its only tool, or that of all."""
    own = step.output
    if own is None and len(step.tools) == 1:
        own = step.tools[0].output
    return results if own is None else own


def keeping_of(output: Output | None, store: Mapping[str, Any]) -> Keeping:
    """What an `output` asks for; `store` is the rendered one."""
    if output is None:
        return Keeping()
    kind = store.get("kind", "auto")
    is_event = kind == "eventlog"
    packing = cast("Packing", store.get("compression", "none"))
    ttl = None if store.get("ttl") is None else _seconds(store["ttl"])
    bucket = None
    if kind in SCHEMES:
        bucket = Bucket(
            kind=kind,
            name=_text(store, "bucket"),
            credential=_text(store, "credential"),
            prefix=str(store.get("prefix") or ""),
            packing=packing,
            ttl_s=ttl,
        )
    wishes = {
        "scope": None if output.scope == "execution" else output.scope,
        "preview": None if output.preview_max_bytes == _PREVIEW else output.preview_max_bytes,
        "ttl": ttl,
        "store": TIERS.get(kind),
        "compression": None if packing == "none" else packing,
        "name": output.as_,
    }
    return Keeping(
        inline_bytes=INLINE_BYTES if is_event else min(output.inline_max_bytes, INLINE_BYTES),
        wishes={name: value for name, value in wishes.items() if value is not None},
        stays_inline=is_event,
        bucket=bucket,
        name=output.as_ or "",
    )


async def rendered_keeping(
    output: Output | None, pipeline: Pipeline, touched: Callable[..., Awaitable[Any]]
) -> Keeping:
    """What an `output` asks for, its templates rendered with what the pipeline knows.

    `touched` fetches values that a template reads and that lie elsewhere.
    """
    if output is None or output.store is None:
        return keeping_of(output, {})
    store = output.store
    try:
        told = await touched(lambda: pipeline.rendered(store, "output.store"))
        return keeping_of(output, told)
    except Unrendered as fault:
        raise ToolError(fault.kind, fault.code, fault.message) from None


def _text(store: Mapping[str, Any], name: str) -> str:
    found = store.get(name)
    if not isinstance(found, str) or not found:
        raise ToolError("config", "invalid_config", f"/output/store/{name}: it has no text")
    return found


def _seconds(value: object) -> int:
    return max(1, int(duration(value, "output.store.ttl", zero=False)))
