"""Starting the runs of messages: one by one or many at once, tried again while nobody answers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from noetl.api.client.calls import decoded, encode, problem
from noetl.api.executions import Dedup, Execute, Ingress, Started, StartedBatch
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.intake.outcomes import (
    LONGEST_WAIT_S,
    StartOutcome,
    answered,
    of_entry,
    unanswered,
)
from noetl.sources.workloads import workload_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from noetl.api.client import Client
    from noetl.api.http import Answer
    from noetl.sources.directives import Plan

Start = Execute
"""A run that is wanted, as an entry of `POST /api/execute/batch`."""
WAITS_S: Final = (0.2, 1.0, 5.0)
JITTER: Final = 0.2
MOST_AT_ONCE: Final = 1_000
_OK: Final = range(200, 300)


class Starter(Protocol):
    """Starts runs: a server, or the engine of this process."""

    async def start(self, starts: Sequence[Start]) -> list[StartOutcome]:
        """What came of each, in their order; never raises for what the other side did."""


class ServerStarter:
    """Starts runs on the server; several in one request."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(self, starts: Sequence[Start]) -> list[StartOutcome]:
        """One request; without an answer none of its entries has one."""
        is_batch = len(starts) > 1
        path = "/api/execute/batch" if is_batch else "/api/execute"
        body = encode({"executions": starts} if is_batch else starts[0])
        try:
            answer = await self._client.raw("POST", path, body)
        except NoAnswer as fault:
            return [unanswered(fault.message, fault.code)] * len(starts)
        if answer.status not in _OK:
            return [_refusal(answer)] * len(starts)
        try:
            return _batch(answer, len(starts)) if is_batch else [_single(answer)]
        except Refused as fault:
            return [unanswered(fault.message, fault.code)] * len(starts)


def _refusal(answer: Answer) -> StartOutcome:
    told = problem(answer)
    after = told.retry_after
    header = answer.headers.get("retry-after", "")
    if after is None and header.isascii() and header.isdigit():
        after = float(header)
    return answered(answer.status, told.code, told.detail, after)


def _single(answer: Answer) -> StartOutcome:
    started = decoded(answer, Started)
    return of_entry(started.status, started.execution_id, None)


def _batch(answer: Answer, count: int) -> list[StartOutcome]:
    told = decoded(answer, StartedBatch)
    found = {
        item.index: of_entry(item.status, item.execution_id, item.error) for item in told.results
    }
    lost = unanswered("the answer does not tell what became of this entry", "bad_answer")
    return [found.get(index, lost) for index in range(count)]


class Dispatcher:
    """Starts runs, and tries again what could not be started for now."""

    def __init__(
        self,
        starter: Starter,
        *,
        told: Callable[[StartOutcome], Awaitable[bool]],
        batch_max: int = 1,
        chance: random.Random | None = None,
    ) -> None:
        """`told` hears every attempt; it answers whether trying again makes sense."""
        self._starter = starter
        self._told = told
        self._batch_max = max(1, min(batch_max, MOST_AT_ONCE))
        self._chance = chance or random.Random()  # noqa: S311 - jitter is no secret

    async def dispatch(self, starts: Sequence[Start], *, tries: int = 4) -> list[StartOutcome]:
        """What came of each, in their order; those of one request are started in their order."""
        made: list[StartOutcome] = []
        for first in range(0, len(starts), self._batch_max):
            made += await self._chunk(starts[first : first + self._batch_max], tries)
        return made

    async def _chunk(self, starts: Sequence[Start], tries: int) -> list[StartOutcome]:
        outcomes: list[StartOutcome] = []
        open_ones = list(range(len(starts)))
        for attempt in range(tries):
            answers = await self._starter.start([starts[index] for index in open_ones])
            if attempt == 0:
                outcomes = list(answers)
            for index, answer in zip(open_ones, answers, strict=True):
                outcomes[index] = answer
            goes_on = await self._heard(answers)
            open_ones = [index for index in open_ones if outcomes[index].kind == "unavailable"]
            if not open_ones or not goes_on or attempt + 1 == tries:
                break
            after = max((outcomes[index].retry_after_s or 0.0 for index in open_ones), default=0.0)
            await asyncio.sleep(self._wait_s(attempt, after))
        return outcomes

    async def _heard(self, answers: Sequence[StartOutcome]) -> bool:
        """Tell of the attempt once: a request that failed has failed once, for all its entries."""
        if all(not answer.is_entry for answer in answers):
            return await self._told(answers[0])
        good = next((answer for answer in answers if answer.is_accepted), None)
        return await self._told(good or answers[0])

    def _wait_s(self, attempt: int, retry_after_s: float) -> float:
        base = WAITS_S[min(attempt, len(WAITS_S) - 1)]
        wait = base * self._chance.uniform(1 - JITTER, 1 + JITTER)
        return min(max(wait, retry_after_s), LONGEST_WAIT_S)


class Gathered:
    """Puts starts that come while a request is under way into the next one.

    Each lane has one start at a time, so that lanes share requests and stay in order.
    """

    def __init__(self, dispatcher: Dispatcher, batch_max: int) -> None:
        self._dispatcher = dispatcher
        self._batch_max = max(1, min(batch_max, MOST_AT_ONCE))
        self._waiting: list[tuple[Start, asyncio.Future[StartOutcome]]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self, start: Start) -> StartOutcome:
        """What came of it, after one attempt."""
        future: asyncio.Future[StartOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((start, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(), name="intake-gathered")
        return await future

    async def _send(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # whoever is ready comes along
            chunk = self._waiting[: self._batch_max]
            del self._waiting[: len(chunk)]
            try:
                answers = await self._dispatcher.dispatch([start for start, _ in chunk], tries=1)
            except BaseException:
                for _, future in (*chunk, *self._waiting):
                    future.cancel()
                self._waiting.clear()
                raise
            for (_, future), answer in zip(chunk, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def start_of(
    subscription: tuple[str, str],
    message: Mapping[str, Any],
    plan: Plan,
    dedup: Mapping[str, Any],
    ingress: Mapping[str, Any],
) -> Start:
    """The run that a message asks for; a subscription is its id and its path."""
    subscription_id, path = subscription
    return Execute(
        path=plan.playbook,
        payload=workload_of(message, plan, subscription_path=path, source=ingress["source"]),
        execution_pool=plan.execution_pool,
        parent_execution_id=subscription_id or None,
        trace=plan.trace,
        dedup=Dedup(**dedup),
        ingress=Ingress(
            message_id=str(message["id"]),
            applied=plan.applied,
            refused=plan.refused,
            route_override=plan.route_override,
            **ingress,
        ),
    )
