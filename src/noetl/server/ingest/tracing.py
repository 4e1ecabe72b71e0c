"""The spans of a server: what is told of starts, commits, claims and messages.

A run is one trace: its `execute` is below whatever its caller named, everything else of the run is
below its `execute`. A run that began without a tracer has no trace, and none is made up for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.base import JSON, store_word
from noetl.blobs.tiered import Tiers
from noetl.engine import events as ev
from noetl.telemetry.traces.context import continued, of_headers
from noetl.telemetry.traces.span import SERVER
from noetl.telemetry.traces.tracer import code_of

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterable,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
    )

    from noetl.api.executions import Started
    from noetl.blobs.base import Blobs, Stat
    from noetl.blobs.packing import Packing
    from noetl.blobs.tiered import Tier
    from noetl.server.ingest.cache import Cache
    from noetl.server.ingest.handout import Batch
    from noetl.server.ingest.turn import Turn
    from noetl.server.ingest.wanted import Wanted
    from noetl.store.base import Outgoing
    from noetl.telemetry.traces.span import Attribute
    from noetl.telemetry.traces.tracer import Tracer

_NONE: Final[dict[str, Attribute]] = {}
_RUN: Final = 1
"""Where the key of a stored value names its run."""


class Spans:
    """Tells a tracer what the server does."""

    def __init__(self, tracer: Tracer, cache: Cache) -> None:
        self.tracer = tracer
        self._cache = cache
        self._decided: list[tuple[Turn, float, float]] = []

    def trace_of(self, execution_id: str) -> dict[str, Any] | None:
        """The trace of a run, if the run is at hand."""
        entry = self._cache.peek(execution_id)
        return None if entry is None else entry.state.trace

    def note(
        self, name: str, execution_id: str, since: float, about: Mapping[str, Attribute]
    ) -> None:
        """Something was done for a run that is at hand."""
        trace = self.trace_of(execution_id)
        if trace is not None:
            self.tracer.note(name, trace, since, {"execution_id": execution_id, **about})

    # ------------------------------------------------------------------ starts

    async def execute(
        self, wanted: Wanted, start: Callable[[Wanted], Awaitable[Started]]
    ) -> Started:
        """Start a run, which goes on below the span of its start."""
        about: dict[str, Attribute] = {"trigger": str(wanted.trigger.get("kind", ""))}
        span = self.tracer.begin("execute", wanted.trace, about, SERVER)
        wanted.trace = continued(wanted.trace, span.context)
        try:
            started = await start(wanted)
        except BaseException as fault:
            self.tracer.end(span, code_of(fault))
            raise
        about = {
            "execution_id": started.execution_id,
            "path": started.path,
            "version": started.version,
            "outcome": started.status,
        }
        self.tracer.end(span, about=about)
        return started

    @contextmanager
    def batch(self, trace: dict[str, Any] | None, size: int) -> Iterator[dict[str, Any] | None]:
        """Many starts; without a caller's trace each of them begins one of its own."""
        about = {"executions": size}
        with self.tracer.during("execute.batch", trace, about, SERVER) as below:
            yield None if trace is None else below

    # ------------------------------------------------------------------ commits

    def decided(self, turn: Turn) -> None:
        """A post was judged and its decisions were taken."""
        self._decided.append((turn, self.tracer.monotonic(), turn.decided_s))

    def committed(self, batch: Batch, lost: Iterable[str], began: float) -> None:
        """A commit is over; what it wrote is told run by run."""
        gone = frozenset(lost)
        decided, self._decided = self._decided, []
        for execution_id, turn in batch.turns.items():
            trace = turn.state.trace
            if trace is None or execution_id in gone or not turn.recorded:
                continue
            if not all(isinstance(item.event, ev.CommandClaimed) for item in turn.recorded):
                about = _about(turn, execution_id, len(batch.turns))
                below = self.tracer.note("event.ingest", trace, began, about)
                for other, ended, took in decided:
                    if other is turn:
                        self.tracer.note("engine.decide", below, ended - took, _NONE, ended)
            for item in turn.recorded:
                found = _of_event(item.event)
                if found is not None:
                    name, own = found
                    own = {"execution_id": execution_id, **own}
                    self.tracer.note(name, trace, began, own)

    # ------------------------------------------------------------------ beside the log

    def published(self, sent: Iterable[tuple[Outgoing, Any]], began: float) -> None:
        """Events of these runs went out to the bus."""
        for outgoing, events in sent:
            self.note("outbox.publish", outgoing.execution_id, began, {"events": len(events)})

    @contextmanager
    def projecting(self, headers: Mapping[str, str], events: int) -> Iterator[None]:
        """Events of another installation are imported: a part of its caller's trace."""
        about = {"events": events}
        with self.tracer.during("events.project", of_headers(headers), about, SERVER):
            yield

    @contextmanager
    def sealing(self, headers: Mapping[str, str], execution_id: str, kind: str) -> Iterator[None]:
        """A secret is sealed for a worker: a part of its command's trace, else of the run's."""
        trace = of_headers(headers) or self.trace_of(execution_id)
        about: dict[str, Attribute] = {"execution_id": execution_id, "kind": kind}
        with self.tracer.during("credential.seal", trace, about, SERVER):
            yield

    @contextmanager
    def rotating(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Records are wrapped with another version of the key."""
        with self.tracer.during("wallet.rotate_kek", of_headers(headers), {}, SERVER):
            yield

    def opened(self, headers: Mapping[str, str], execution_id: str, began: float) -> None:
        """Somebody reads the events of a run: a part of his own trace, else of the run's."""
        trace = of_headers(headers) or self.trace_of(execution_id)
        self.tracer.note("stream.open", trace, began, {"execution_id": execution_id})


def _about(turn: Turn, execution_id: str, runs: int) -> dict[str, Attribute]:
    """What is told of one run's part of a commit."""
    first, last = turn.recorded[0].seq, turn.recorded[-1].seq
    return {
        "execution_id": execution_id,
        "first_seq": first,
        "last_seq": last,
        "events": last - first + 1,
        "runs_of_commit": runs,
    }


def _of_event(event: ev.Event) -> tuple[str, dict[str, Attribute]] | None:
    """The events that are spans of their own."""
    match event:
        case ev.CommandClaimed():
            about = {"worker_id": event.worker_id, **_of_command(event)}
            return "command.claim", about
        case ev.CommandLost():
            return "command.lease_lost", _of_command(event)
        case ev.TimerFired():
            return "timer.fire", {"timer": event.timer_key}
        case _:
            return None


def _of_command(event: ev.CommandClaimed | ev.CommandLost) -> dict[str, Attribute]:
    return {"command": event.command_key, "step": event.step, "attempt": event.attempt}


class TracedBlobs:
    """A store of large bytes whose puts are spans of their runs."""

    def __init__(self, blobs: Blobs, spans: Spans) -> None:
        self._blobs = blobs
        self._spans = spans
        # What only reads is the store's own.
        self.get = blobs.get
        self.get_stream = blobs.get_stream
        self.head = blobs.head
        self.delete = blobs.delete
        self.listed = blobs.listed
        if isinstance(blobs, Tiers):
            self.objects_of = blobs.objects_of
            self.unnamed = blobs.unnamed
            self.drop = blobs.drop
            self.placing = partial(_placing, blobs, spans)

    @property
    def name(self) -> str:
        """The word for the store."""
        return self._blobs.name

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes."""
        began = self._spans.tracer.monotonic()
        await self._blobs.put(key, data, media_type=media_type)
        self._told(key, began, len(data))

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come."""
        began = self._spans.tracer.monotonic()
        stat = await self._blobs.put_stream(key, chunks, media_type=media_type)
        self._told(key, began, stat.size)
        return stat

    def _told(self, key: str, began: float, size: int) -> None:
        parts = key.split("/")
        if len(parts) > _RUN:
            word = store_word(self._blobs.name, size)
            about: dict[str, Attribute] = {"bytes": size, "store": word}
            self._spans.note("result_store.put", parts[_RUN], began, about)


def _placing(blobs: Tiers, spans: Spans, tier: Tier, packing: Packing = "none") -> TracedBlobs:
    return TracedBlobs(blobs.placing(tier, packing), spans)
