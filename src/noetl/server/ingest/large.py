"""Values over the inline limit: stored under their content before the append, loaded on demand."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.results import INLINE_BYTES
from noetl.blobs.base import JSON, BlobGone, store_word
from noetl.blobs.refs import id_of, key_of, ref_of, reference_of
from noetl.dsl.views import Reference, Unreadable
from noetl.edge.errors import BadJson, TooLargeToRead
from noetl.engine import events as ev
from noetl.engine.work import CHUNK
from noetl.errors import NoetlError
from noetl.server.metrics import ServerMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.blobs.base import Blobs, Stat

MOST_READ_BYTES: Final = 8 * 1024 * 1024
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024

_SMALL_TEXT: Final = 128
_RESULTS: Final = frozenset({
    ev.StepExited,
    ev.CallDone,
    ev.LoopDone,
    ev.PlaybookCompleted,
    ev.PlaybookFailed,
    ev.CallError,
    ev.ExecutionReturned,
})  # fmt: skip
_encode: Final = msgspec.json.Encoder().encode


class Large:
    """Moves large values out of events, and fetches them for decisions."""

    def __init__(
        self, blobs: Blobs, inline_bytes: int = INLINE_BYTES, metrics: ServerMetrics | None = None
    ) -> None:
        self._metrics = metrics or ServerMetrics()
        self._blobs = blobs
        self._limit = inline_bytes
        self._kept: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self._kept_bytes = 0

    def fits(self, event: ev.Event) -> bool:
        """Whether an event may be appended as it is."""
        kind = type(event)
        if kind in _RESULTS:
            return self._is_small(event.result)  # type: ignore[attr-defined]  # all of these have one
        if kind is ev.CtxUpdated:
            return all(map(self._is_small, event.ctx.values()))  # type: ignore[attr-defined]  # of that kind
        return kind is not ev.LoopStarted or self._is_small(event.items)  # type: ignore[attr-defined]  # of that kind

    def _is_small(self, value: object) -> bool:
        if not value or isinstance(value, (bool, int, float)):
            return True
        if isinstance(value, str) and len(value) <= _SMALL_TEXT:
            return True
        return len(_encode(value)) <= self._limit

    async def externalised(self, execution_id: str, event: ev.Event) -> ev.Event:
        """The event with references in the place of its large values."""
        change = msgspec.structs.replace
        step = getattr(event, "step", "playbook")
        if isinstance(event, ev.LoopStarted):
            chunks = [
                await self.keep(execution_id, step, event.items[start : start + CHUNK])
                for start in range(0, len(event.items), CHUNK)
            ]
            return change(event, items=None, items_ref=tuple(chunks))
        if isinstance(event, ev.CtxUpdated):
            moved = {
                path: await self.keep(execution_id, "ctx", value)
                for path, value in event.ctx.items()
                if not self._is_small(value)
            }
            inline = {path: value for path, value in event.ctx.items() if path not in moved}
            return change(event, ctx=inline, refs={**event.refs, **moved})
        if type(event) in _RESULTS:
            kind = "loop" if isinstance(event, ev.LoopDone) else "result_ref"
            reference = await self.keep(execution_id, step, event.result, kind)  # type: ignore[attr-defined]  # all of these have one
            return change(event, result=None, reference=reference)
        return event

    async def keep(
        self, execution_id: str, step: str, value: object, kind: str = "result_ref"
    ) -> Reference:
        """Store a value."""
        data = _encode(value)
        ref = ref_of(execution_id, step, id_of(data))
        await self._blobs.put(key_of(ref), data, media_type=JSON)
        store = self._counted(len(data), self._blobs)
        made = reference_of(ref, data, value, store=store)
        return made if kind == made.kind else dataclasses.replace(made, kind=kind)

    async def stored(
        self, execution_id: str, step: str, data: bytes, media_type: str, blobs: Blobs | None = None
    ) -> Reference:
        """Store bytes as a worker sends them; equal bytes are one object."""
        blobs = blobs or self._blobs
        value = None
        if media_type.partition(";")[0].strip() == JSON:
            try:
                value = msgspec.json.decode(data)
            except msgspec.DecodeError as fault:
                raise BadJson(f"the body is not JSON: {fault}") from None
        ref = ref_of(execution_id, step, id_of(data))
        await blobs.put(key_of(ref), data, media_type=media_type)
        store = self._counted(len(data), blobs)
        return reference_of(ref, data, value, store=store, media_type=media_type)

    def _counted(self, size: int, blobs: Blobs) -> str:
        """The word for where a value went."""
        store = store_word(blobs.name, size)
        self._metrics.result_store_put.inc(store)
        return store

    async def read(self, ref: str) -> bytes:
        """The bytes of a reference."""
        try:
            data = await self._blobs.get(key_of(ref))
        except BlobGone:
            self._metrics.result_store_resolve.inc("gone")
            raise
        self._metrics.result_store_resolve.inc("found")
        return data

    async def stat(self, ref: str) -> Stat:
        """What is known of the bytes of a reference."""
        key = key_of(ref)
        found = await self._blobs.head(key)
        if found is None:
            raise BlobGone(f"nothing lies under {ref}")
        return found

    async def value(self, reference: Reference) -> Any:  # noqa: ANN401 - a user's value
        """The value of a reference; objects never change, so the last used ones are kept."""
        ref = reference.ref
        found = self._kept.get(ref)
        if found is not None:
            self._kept.move_to_end(ref)
            return found[1]
        if reference.size is not None and reference.size > MOST_READ_BYTES:
            raise TooLargeToRead(
                f"{ref} has {reference.size} bytes",
                hint=f"an expression reads at most {MOST_READ_BYTES} bytes; use a step",
            )
        data = await self.read(ref)
        value = msgspec.json.decode(data)
        self._kept[ref] = (len(data), value)
        self._kept_bytes += len(data)
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            _, (size, _) = self._kept.popitem(last=False)
            self._kept_bytes -= size
        return value

    async def of_map(self, reference: object) -> Any:  # noqa: ANN401 - a user's value
        """The value of a reference in its plain form."""
        return await self.value(msgspec.convert(reference, Reference))

    async def loaded(self, references: Iterable[Reference]) -> dict[str, Any]:
        """The objects that a decision needs, by reference; why, of those that cannot be had."""
        found: dict[str, Any] = {}
        for item in references:
            try:
                found[item.ref] = await self.value(item)
            except NoetlError as gone:
                if gone.retryable:  # a decision must not depend on when it was taken
                    raise
                found[item.ref] = Unreadable(gone.code, gone.message)
        return found
