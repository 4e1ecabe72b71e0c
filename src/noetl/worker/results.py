"""What a tool returned, as JSON: inline when it is small, stored and referenced when it is not."""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.api.results import INLINE_BYTES
from noetl.dsl.paths import NoSuchPath, found_at
from noetl.dsl.template import View
from noetl.tools.base import Plain, ToolError
from noetl.tools.objects.kept import put_result
from noetl.worker.meters import Meters
from noetl.worker.patience import is_passing, patiently

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.api.client import Client
    from noetl.api.commands import Command
    from noetl.dsl.playbook import Step
    from noetl.dsl.tasks.task import Output
    from noetl.tools.base import ToolContext
    from noetl.tools.objects.kept import Bucket
    from noetl.worker.keeping import Keeping
    from noetl.worker.parcels import Parcels

CHECKPOINT_BYTES: Final = 256 << 10
APART: Final = "_ref"
"""The key of a checkpoint that lies elsewhere."""
_AS_IT_IS: Final = frozenset({str, bool, type(None)})
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_NO_WISHES: Final[Mapping[str, Any]] = MappingProxyType({})
NO_OBJECT_STORE: Final = "no_object_store"
_encode: Final = msgspec.json.Encoder().encode


def encoded(value: object) -> bytes:
    """The value as compact JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise ToolError("schema", "not_serialisable", f"no form in JSON: {fault}") from None


def plain(value: Any, on_nan: Callable[[], None]) -> Any:  # noqa: ANN401 - any value of a tool
    """The value as JSON has it; `schema`/`not_serialisable` when it has no form there."""
    try:
        return _plain(value, on_nan)
    except RecursionError:
        message = "the result is nested too deeply, or contains itself"
        raise ToolError("schema", "not_serialisable", message) from None


def _plain(value: Any, on_nan: Callable[[], None]) -> Any:  # noqa: ANN401 - any value of a tool
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is list or kind is tuple:
        return [item if type(item) in _AS_IT_IS else _plain(item, on_nan) for item in value]
    if kind is dict:
        if not all(type(name) is str for name in value):
            raise _formless(next(name for name in value if type(name) is not str), "a key")
        return {
            name: item if type(item) in _AS_IT_IS else _plain(item, on_nan)
            for name, item in value.items()
        }
    if kind is Plain:
        return dict(value)
    if kind is int:  # beyond 64 bits most readers would round it
        return value if _LEAST <= value <= _MOST else str(value)
    if kind is float:
        if math.isfinite(value):
            return value
        on_nan()
        return None
    return _scalar(value, on_nan)


def _scalar(value: Any, on_nan: Callable[[], None]) -> Any:  # noqa: ANN401 - any value of a tool
    match value:
        case View():
            return _plain(value.plain(), on_nan)
        case Decimal() | UUID():
            return str(value)
        case datetime():
            return (
                (value if value.tzinfo else value.replace(tzinfo=UTC))
                .isoformat()
                .replace("+00:00", "Z")
            )
        case date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
    raise _formless(value, "a value")


def _formless(value: object, what: str) -> ToolError:
    message = f"{what} of the result is a {type(value).__name__}, which JSON has no form for"
    return ToolError("schema", "not_serialisable", message)


class Results:
    """Keeps values where events may carry them."""

    def __init__(
        self,
        client: Client,
        meters: Meters | None = None,
        parcels: Parcels | None = None,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self._client = client
        self._parcels = parcels
        self._inline_bytes = inline_bytes
        self._meters = meters or Meters()

    async def kept(
        self,
        value: object,
        command: Command,
        keeping: Keeping,
        context: Callable[[], ToolContext] | None = None,
    ) -> tuple[dict[str, Any], int]:
        """The fields of a report that hold the value, and how many bytes they take.

        `context` gives what a bucket of the author's own is reached with.
        """
        if value is None:
            return {}, 0
        raw = encoded(value)
        most_bytes = min(keeping.inline_bytes, self._inline_bytes)
        if len(raw) <= most_bytes:
            return {"result": msgspec.Raw(raw)}, len(raw)
        if keeping.stays_inline:
            message = f"`output.store`: {len(raw)} bytes; an event holds {most_bytes}"
            raise ToolError("storage_quota", "inline_limit", message)
        if keeping.bucket is not None and context is not None:
            name = keeping.name or command.node_name
            told = encoded(await self._in_bucket(raw, keeping.bucket, name, context()))
            return {"result": msgspec.Raw(told)}, len(told)
        return {"reference": await self._stored(raw, command, keeping.wishes)}, most_bytes

    async def _in_bucket(
        self, raw: bytes, bucket: Bucket, name: str, ctx: ToolContext
    ) -> dict[str, Any]:
        """Put a value into a bucket of the author's own; what stands in its place."""
        try:
            made = await put_result(raw, name, bucket, ctx)
        except ToolError:
            self._meters.stored("refused", 0)
            raise
        self._meters.stored("ok", len(raw))
        return made

    async def checkpoint(self, made: dict[str, Any], command: Command) -> tuple[Any, int]:
        """A checkpoint as it may travel: whole, or as the reference of where it lies."""
        raw = encoded(made)
        if len(raw) <= CHECKPOINT_BYTES:
            return msgspec.Raw(raw), len(raw)
        return {APART: await self._stored(raw, command)}, INLINE_BYTES

    async def _stored(
        self, raw: bytes, command: Command, wishes: Mapping[str, Any] = _NO_WISHES
    ) -> dict[str, Any]:
        def store() -> Awaitable[dict[str, Any]]:
            return self._client.put_result(
                command.execution_id, command.node_name, raw, "application/json", **wishes
            )

        try:
            found = await (patiently(store) if self._parcels is None else store())
        except NoAnswer:
            if self._parcels is None:
                raise
            self._meters.stored("kept", 0)
            return await self._parcels.keep(raw, wishes)
        except Refused as fault:
            if self._parcels is not None and is_passing(fault):
                self._meters.stored("kept", 0)
                return await self._parcels.keep(raw, wishes)
            self._meters.stored("refused", 0)
            message = f"{len(raw)} bytes could not be stored: {fault.message}"
            kind = "config" if fault.code == NO_OBJECT_STORE else "storage_quota"
            raise ToolError(kind, fault.code, message) from None
        self._meters.stored("ok", len(raw))
        return found


def selected(step: Step, output: Output | None, data: Any) -> dict[str, Any]:  # noqa: ANN401 - data of a tool
    """The fields that the author chose of a result: readable as `<step>.<name>` without a fetch."""
    if output is None or not output.select or step.loop is not None:
        return {}
    found: dict[str, Any] = {}
    for name, path in output.select.items():
        try:
            found[name] = found_at(data, path)
        except NoSuchPath:
            found[name] = None
    return found
