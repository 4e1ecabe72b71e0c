"""Runs that clients watch: followed once per gateway, told to everybody who may see them.

What is watched is not in the log of a client. A reader that falls behind misses some of it, sees
that by the numbers, and reads it from the server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.api.problems import Refused
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.gateway import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.person import Person
    from noetl.gateway.upstream import Upstream

MOST_RUNS: Final = 50
CHANNELS: Final = ("state", "events", "logs")
RECENT: Final = 200
"""Events of a run that whoever begins to watch is told of the past."""
_FIRST_S: Final = 0.2
_LONGEST_S: Final = 5.0
_REFUSED: Final = (401, 403, 404)
_log: Final = logging.getLogger(__name__)


class Watches:
    """Who watches what, on this gateway."""

    def __init__(self, upstream: Upstream, streams: Mapping[str, Stream]) -> None:
        self._upstream = upstream
        self._streams = streams
        self._of: dict[str, dict[str, set[str]]] = {}
        """The channels of runs, by client."""
        self._by: dict[str, set[str]] = {}
        """The clients of a run."""
        self._followers: dict[tuple[str, bool], asyncio.Task[None]] = {}
        """What follows a run: its events, or its lines."""

    def must_fit(self, client_id: str, runs: Sequence[str]) -> None:
        """Refuse more than a client may watch."""
        if len(set(runs) | set(self._of.get(client_id, ()))) > MOST_RUNS:
            raise Unacceptable(f"a client watches at most {MOST_RUNS} executions")

    async def must_see(self, person: Person, runs: Sequence[str]) -> None:
        """Refuse runs that somebody may not see, as the server says."""
        await asyncio.gather(*(self._upstream.acting_for(person, run).status(run) for run in runs))

    def of(self, client_id: str) -> list[str]:
        """What a client watches."""
        return list(self._of.get(client_id, ()))

    @property
    def followed(self) -> int:
        """How many streams of the server are read."""
        return len(self._followers)

    def add(self, client_id: str, runs: Iterable[str], channels: Iterable[str]) -> None:
        """Tell a client of runs from now on."""
        watched = self._of.setdefault(client_id, {})
        for run in runs:
            watched.setdefault(run, set()).update(channels)
            self._by.setdefault(run, set()).add(client_id)
            for is_log in (False, True):
                if self._hearers(run, is_log=is_log) and (run, is_log) not in self._followers:
                    task = asyncio.create_task(self._follow(run, is_log=is_log), name="hub.watch")
                    self._followers[run, is_log] = task
                    task.add_done_callback(_ended)

    def remove(
        self, client_id: str, runs: Iterable[str] = (), channels: Iterable[str] = ()
    ) -> None:
        """Tell a client of runs no more; without names, of none and on no channel."""
        watched = self._of.get(client_id, {})
        for run in list(runs) or list(watched):
            left = watched.get(run, set())
            left.difference_update(list(channels) or CHANNELS)
            if not left:
                watched.pop(run, None)
                self._by.get(run, set()).discard(client_id)
            self._let_go(run)
        if not watched:
            self._of.pop(client_id, None)

    def forget(self, client_id: str) -> None:
        """A client has left."""
        if client_id in self._of:
            self.remove(client_id)

    def _let_go(self, run: str) -> None:
        """Stop following what nobody watches any more."""
        for is_log in (False, True):
            if not self._hearers(run, is_log=is_log):
                task = self._followers.pop((run, is_log), None)
                if task is not None:
                    task.cancel()
        if not self._by.get(run):
            self._by.pop(run, None)

    def _hearers(self, run: str, *, is_log: bool) -> list[tuple[Stream, set[str]]]:
        """The streams that are told of a run, with their channels."""
        found = []
        for client_id in self._by.get(run, ()):
            channels = self._of.get(client_id, {}).get(run, set())
            stream = self._streams.get(client_id)
            wanted = {"logs"} if is_log else {"state", "events"}
            if stream is not None and channels & wanted:
                found.append((stream, channels))
        return found

    async def _follow(self, run: str, *, is_log: bool) -> None:
        """Read a stream of the server until the run has ended or nobody watches."""
        since: str | None = None
        pause_s = _FIRST_S
        is_first = True
        while hearers := self._hearers(run, is_log=is_log):
            stream = hearers[0][0]
            try:
                if is_first and not is_log:
                    since = await self._start(stream.person, run)
                is_first = False
                async for told in self._source(stream.person, run, since, is_log=is_log):
                    if told["event"] == "end":
                        self._drop(run, is_log=is_log)
                        return
                    since, pause_s = told["id"] or since, _FIRST_S
                    self._tell(run, told["data"], is_log=is_log)
            except Refused as refusal:
                if refusal.problem.status in _REFUSED:
                    self.remove(stream.client_id, [run])  # he may not see it any more
                    continue
            except NoetlError as fault:
                _log.info("a watched run is not told of now", extra={"code": fault.code})
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_S, pause_s * 2)
        self._drop(run, is_log=is_log)

    async def _start(self, person: Person, run: str) -> str | None:
        """The event behind which a run is told: none, or one that is not long ago."""
        client = self._upstream.acting_for(person, run)
        last = (await client.events(run, limit=1)).last_seq
        if last <= RECENT:
            return None
        page = await client.events(run, after=last - RECENT, limit=1)
        return str(page.items[0]["event_id"]) if page.items else None

    def _source(
        self, person: Person, run: str, since: str | None, *, is_log: bool
    ) -> AsyncIterator[dict[str, Any]]:
        client = self._upstream.acting_for(person, run)
        if is_log:
            return client.log_stream(run, since=since)
        return client.stream(run, since_event_id=since, fields="full")

    def _tell(self, run: str, row: dict[str, Any], *, is_log: bool) -> None:
        """Tell everybody who watches, each on its channels; a message is made once."""
        if is_log:
            frame = frames.log(run, row)
            for stream, _ in self._hearers(run, is_log=True):
                stream.spare(frame)
            return
        event = state = b""
        for stream, channels in self._hearers(run, is_log=False):
            if "events" in channels:
                event = event or frames.event(row)
                stream.spare(event)
            if "state" in channels and frames.is_state(row["event_type"]):
                state = state or frames.state(row)
                stream.spare(state)

    def _drop(self, run: str, *, is_log: bool) -> None:
        """A run has ended, or nobody watches it: it is not followed any more."""
        self._followers.pop((run, is_log), None)
        ended = {"logs"} if is_log else {"state", "events"}
        for client_id in list(self._by.get(run, ())):
            self.remove(client_id, [run], ended)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        _log.error("a watched run is not followed any more", exc_info=fault)
