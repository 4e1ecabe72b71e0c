"""Many starts in one request: each is checked on its own, and they are written in slices."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import BatchItem, Execute, Started, StartedBatch
from noetl.api.models import decoder_of
from noetl.edge.errors import Forbidden, Unacceptable
from noetl.edge.problems import problem_of
from noetl.errors import NoetlError
from noetl.server.access.entry import LOCAL
from noetl.server.ingest.wanted import concurrency_of, keys_of
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from noetl.server.access.entry import Caller
    from noetl.server.ingest.posts import Post
    from noetl.server.ingest.programs import Programs
    from noetl.server.ingest.queue import Ingest
    from noetl.server.ingest.tracing import Spans
    from noetl.server.ingest.wanted import Wanted
    from noetl.server.runs.execute import Runs
    from noetl.server.runs.starts import Starts
    from noetl.store.base import CatalogEntry

MOST_ITEMS: Final = 1_000
AT_ONCE: Final = 8
"""How many items look something up in the store at a time."""
PATIENCE_S: Final = 0.1
"""How long the starts that are ready wait for one that is held up, by a key of another request."""
_log: Final = logging.getLogger(__name__)


class Batches:
    """Starts many runs."""

    def __init__(
        self,
        starts: Starts,
        runs: Runs,
        programs: Programs,
        ingest: Ingest,
        spans: Spans | None = None,
    ) -> None:
        self._starts = starts
        self._runs = runs
        self._programs = programs
        self._ingest = ingest
        self._spans = spans

    async def execute(
        self,
        items: tuple[msgspec.Raw, ...],
        caller: Caller = LOCAL,
        trace: dict[str, Any] | None = None,
    ) -> StartedBatch:
        """Start every item that can be started; equal keys are one run."""
        if not 1 <= len(items) <= MOST_ITEMS:
            raise Unacceptable(
                f"{len(items)} executions in one batch",
                code="batch_size_invalid",
                hint=f"1..{MOST_ITEMS}",
            )
        self._starts.quotas.pace(caller, len(items))
        if self._spans is None:
            return await self._execute(items, caller, trace)
        with self._spans.batch(trace, len(items)) as below:
            return await self._execute(items, caller, below)

    async def _execute(
        self, items: tuple[msgspec.Raw, ...], caller: Caller, trace: dict[str, Any] | None
    ) -> StartedBatch:
        outcomes: list[Started | BaseException | None] = [None] * len(items)
        wishes = await self._wishes(items, caller, trace, outcomes)
        seen: set[tuple[str, str]] = set()
        later: list[int] = []
        for place, wanted in wishes.items():
            keys = {key[:2] for key in keys_of(wanted)}
            if keys & seen:
                later.append(place)
            seen |= keys
        held = await self._runs.held(sorted(seen))
        for place in set(wishes).difference(later):
            wishes[place].is_free = held.isdisjoint(key[:2] for key in keys_of(wishes[place]))
        await self._together(
            {place: wanted for place, wanted in wishes.items() if place not in set(later)}, outcomes
        )
        for place in later:
            outcomes[place] = await self._outcome(wishes[place])
        await self._starts.messages.answered(
            (wishes[place], outcome)
            for place, outcome in enumerate(outcomes)
            if isinstance(outcome, Started) and place in wishes
        )
        answer = _answer(outcomes)
        self._starts.quotas.pace(caller, answer.started - len(items))
        return answer

    async def _wishes(
        self,
        items: tuple[msgspec.Raw, ...],
        caller: Caller,
        trace: dict[str, Any] | None,
        outcomes: list[Started | BaseException | None],
    ) -> dict[int, Wanted]:
        decode = decoder_of(Execute).decode
        entries: dict[tuple[Any, ...], CatalogEntry] = {}
        wishes: dict[int, Wanted] = {}
        for place, item in enumerate(items):
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # others need the loop, too
            body = None
            try:
                body = decode(item)
                if body.dry_run:
                    raise Unacceptable("a batch has no dry runs")
                wishes[place] = await self._starts.wanted(
                    body, caller, trace=trace, entries=entries
                )
            except msgspec.ValidationError as fault:
                outcomes[place] = Unacceptable(str(fault))
            except NoetlError as refusal:
                outcomes[place] = refusal
                if body is not None and isinstance(refusal, Forbidden):
                    path = str(body.path or body.catalog_id or "")
                    self._starts.audits.noted(caller, "execution.run", path, refusal.code)
        return wishes

    async def _together(
        self, wishes: dict[int, Wanted], outcomes: list[Started | BaseException | None]
    ) -> None:
        gathering = Gathering(self._ingest, len(wishes))

        async def one(place: int, wanted: Wanted) -> None:
            seat = await gathering.seat()
            entry = wanted.entry
            if entry is None or concurrency_of(self._programs.of(entry).playbook) is None:
                wanted.sender = seat
            try:
                outcomes[place] = await self._outcome(wanted)
            finally:
                wanted.sender = None
                seat.leave()

        async with asyncio.TaskGroup() as group:
            for place, wanted in wishes.items():
                group.create_task(one(place, wanted))
            group.create_task(gathering.run())

    async def _outcome(self, wanted: Wanted) -> Started | BaseException:
        try:
            return await self._runs.start(wanted)
        except NoetlError as refusal:
            return refusal
        except Exception as defect:  # noqa: BLE001 - a defect of one item never fails the others
            _log.error("an item of a batch has failed", exc_info=defect)
            return defect


class Gathering:
    """Holds posts back until all who may bring one have come or left, then appends them as one."""

    def __init__(self, ingest: Ingest, expected: int) -> None:
        self._ingest = ingest
        self.expected = expected
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting: list[tuple[Post, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    async def seat(self) -> Seat:
        """A place for one who may bring a post."""
        await self._room.acquire()
        return Seat(self)

    async def hand_in(self, post: Post) -> None:
        """Wait until a post was appended with the others."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((post, done))
        self.noticed()
        await done

    def noticed(self) -> None:
        """See whether anybody is still to come."""
        if len(self._waiting) >= self.expected:
            self._changed.set()

    def let_in(self) -> None:
        """One more may look things up."""
        self._room.release()

    async def run(self) -> None:
        """Append what has come, until nobody is expected any more."""
        while self.expected > 0:
            await sleep_until(self._changed, PATIENCE_S)
            taken, self._waiting = self._waiting, []
            if not taken:
                continue
            self.expected -= len(taken)
            try:
                await self._ingest.submit([post for post, _ in taken])
            except NoetlError as fault:
                for _, done in taken:
                    done.set_exception(fault)
                continue
            for _, done in taken:
                done.set_result(None)


class Seat:
    """The place of one item: it brings one post, or leaves."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._is_here = True

    async def post(self, post: Post) -> Post:
        """Append one post together with those of the other items; its refusal is raised."""
        if self._is_here:
            self._is_here = False
            self._gathering.let_in()
            await self._gathering.hand_in(post)
        if post.error is not None:
            raise post.error
        return post

    def leave(self) -> None:
        """Nothing more comes from here."""
        if self._is_here:
            self._is_here = False
            self._gathering.let_in()
            self._gathering.expected -= 1
            self._gathering.noticed()


def _answer(outcomes: list[Started | BaseException | None]) -> StartedBatch:
    results = tuple(_item(index, outcome) for index, outcome in enumerate(outcomes))
    counts = {"started": 0, "duplicate": 0, "error": 0}
    for item in results:
        counts[item.status] += 1
    return StartedBatch(
        count=len(results),
        started=counts["started"],
        duplicates=counts["duplicate"],
        failed=counts["error"],
        results=results,
    )


def _item(index: int, outcome: Started | BaseException | None) -> BatchItem:
    if isinstance(outcome, Started):
        return BatchItem(
            index=index,
            status=outcome.status,
            commands_generated=outcome.commands_generated,
            execution_id=outcome.execution_id,
        )
    fault = outcome if outcome is not None else AssertionError("an item without an outcome")
    problem = problem_of(fault)
    error: dict[str, Any] = {
        "code": problem.code,
        "detail": problem.detail,
        "retryable": isinstance(fault, NoetlError) and fault.retryable,
    }
    if problem.errors:
        error["errors"] = problem.errors
    return BatchItem(index=index, status="error", commands_generated=0, error=error)
