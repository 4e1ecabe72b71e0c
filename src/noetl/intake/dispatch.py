"""Starting the runs of messages: one by one or many at once, tried again while nobody answers."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

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
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from noetl.api.client import Client
    from noetl.api.http import Answer
    from noetl.sources.directives import Plan

Start = Execute
"""A run that is wanted, as an entry of `POST /api/execute/batch`."""
WAITS_S: Final = (0.2, 1.0, 5.0)
JITTER: Final = 0.2
MOST_AT_ONCE: Final = 1_000
MOST_BYTES_AT_ONCE: Final = 4 << 20
"""More is not put into one request, unless one start has more."""
MOST_BYTES_ALONE: Final = 1 << 20
"""A start that has more goes by the route for many, which takes larger bodies."""
UNDER_WAY: Final = 2
"""Requests at once: one is made and read while the server works on the other."""
LEAST_SHARED: Final = 32
"""Fewer starts are not worth two requests."""
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
        body = encode(starts[0]) if len(starts) == 1 else encode({"executions": starts})
        is_batch = len(starts) > 1 or len(body) > MOST_BYTES_ALONE
        if is_batch and len(starts) == 1:
            body = encode({"executions": [msgspec.Raw(body)]})
        path = "/api/execute/batch" if is_batch else "/api/execute"
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
        """What came of each, in their order; those of one request are started in their order.

        No request is made after one that nobody has answered: what comes later begins later.
        """

        async def send(some: Sequence[Start]) -> list[StartOutcome]:
            return await self._chunk(some, tries)

        return await _in_turn(self._cut(starts), send)

    def _cut(self, starts: Sequence[Start]) -> Iterator[Sequence[Start]]:
        """The starts of each request: no more, and no larger, than one holds."""
        if len(starts) == 1:  # it goes, however large it is
            yield starts
            return
        first = size = 0
        for place, start in enumerate(starts):
            more = len(encode(start))
            is_full = size + more > MOST_BYTES_AT_ONCE or place - first == self._batch_max
            if place > first and is_full:
                yield starts[first:place]
                first, size = place, 0
            size += more
        if starts:
            yield starts[first:]

    async def _chunk(self, starts: Sequence[Start], tries: int) -> list[StartOutcome]:
        outcomes: list[StartOutcome] = []
        open_ones = list(range(len(starts)))
        for attempt in range(tries):
            answers = await self._answers([starts[index] for index in open_ones])
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

    async def _answers(self, starts: Sequence[Start]) -> list[StartOutcome]:
        """What came of each: a request that is refused is split until the bad one is alone."""
        found = await self._starter.start(starts)
        is_split = all(one.kind == "refused" and not one.is_entry for one in found)
        if len(starts) == 1 or not is_split:
            return found
        middle = len(starts) // 2
        return await _in_turn((starts[:middle], starts[middle:]), self._answers)

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


async def _in_turn(
    requests: Iterable[Sequence[Start]],
    send: Callable[[Sequence[Start]], Awaitable[list[StartOutcome]]],
) -> list[StartOutcome]:
    """What came of request after request; when one is not answered the next ones are not made."""
    made: list[StartOutcome] = []
    away: StartOutcome | None = None
    for some in requests:
        found = await send(some) if away is None else [away] * len(some)
        away = next((one for one in found if one.is_of_all), None)
        made += found
    return made


class Hasty:
    """Does not wait for an answer for ever: after a while nobody has answered."""

    def __init__(self, starter: Starter, timeout_s: float) -> None:
        self._starter = starter
        self._timeout_s = timeout_s

    async def start(self, starts: Sequence[Start]) -> list[StartOutcome]:
        """What came of each; those without an answer may have begun."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._starter.start(starts)
        except TimeoutError:
            late = unanswered(f"no answer within {self._timeout_s:g} s", "timeout")
            return [late] * len(starts)


@dataclass(frozen=True, slots=True)
class _Group:
    """Starts that were given together."""

    starts: Sequence[Start]
    size: int
    answers: asyncio.Future[list[StartOutcome]]


class Gathered:
    """Puts starts that come while enough requests are under way into the next one.

    One that comes while fewer are goes at once. Starts that are given together stay together, in
    their order. Each lane gives one when it has heard of the one before, so that lanes share
    requests and stay in order.
    """

    def __init__(
        self, dispatcher: Dispatcher, batch_max: int, *, under_way: int = UNDER_WAY
    ) -> None:
        self._dispatcher = dispatcher
        self.batch_max = max(1, min(batch_max, MOST_AT_ONCE))
        self._under_way = under_way
        self._waiting: deque[_Group] = deque()
        self._senders = self._sending = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, start: Start, size: int = 0) -> StartOutcome:
        """What came of it, after one attempt; `size` is about that of its bytes."""
        return (await self.start_all([start], size))[0]

    async def start_all(self, starts: Sequence[Start], size: int = 0) -> list[StartOutcome]:
        """What came of each, after one attempt in one request."""
        answers: asyncio.Future[list[StartOutcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Group(starts, size, answers))
        if self._senders < self._under_way:
            self._senders += 1
            # Whoever comes first begins it, and what it sends for others is not of his trace.
            task = asyncio.create_task(self._send(), name="intake-gathered", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answers

    async def _send(self) -> None:
        """Send what waits, until nothing does."""
        groups: list[_Group] = []
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever is ready comes along
                groups = self._next()
                self._sending += 1
                try:
                    await self._sent(groups)
                finally:
                    self._sending -= 1
        except BaseException:
            for group in groups:
                group.answers.cancel()
            if self._senders == 1:  # nobody else is there to send the others
                while self._waiting:
                    self._waiting.popleft().answers.cancel()
            raise
        finally:
            self._senders -= 1

    def _next(self) -> list[_Group]:
        """As many as one request holds; those that nobody waits for any more are left out."""
        taken: list[_Group] = []
        most, count, size = self._share(), 0, 0
        while self._waiting:
            group = self._waiting[0]
            count, size = count + len(group.starts), size + group.size
            if taken and (count > most or size > MOST_BYTES_AT_ONCE):
                break
            self._waiting.popleft()
            if group.answers.done():
                count, size = count - len(group.starts), size - group.size
            else:
                taken.append(group)
        return taken

    def _share(self) -> int:
        """How many go now: many are shared evenly with whoever else may send."""
        waiting = sum(len(group.starts) for group in self._waiting)
        if waiting < LEAST_SHARED:
            return self.batch_max
        return min(self.batch_max, -(-waiting // (self._under_way - self._sending)))

    async def _sent(self, groups: Sequence[_Group]) -> None:
        starts = [start for group in groups for start in group.starts]
        answers = await self._answers(starts) if starts else []
        first = 0
        for group in groups:
            mine = answers[first : first + len(group.starts)]
            first += len(mine)
            if group.answers.done():
                continue
            found = [one for one in mine if isinstance(one, StartOutcome)]
            fault = next((one for one in mine if isinstance(one, Exception)), None)
            if fault is not None:
                group.answers.set_exception(fault)
            else:
                group.answers.set_result(found)

    async def _answers(self, starts: Sequence[Start]) -> list[StartOutcome | Exception]:
        """What came of each: starts that cannot be sent are split until the bad one is alone."""
        try:
            return [*await self._dispatcher.dispatch(starts, tries=1)]
        except Exception as fault:  # noqa: BLE001 - raised where it was asked for; others go on
            if len(starts) == 1:
                return [fault]
        middle = len(starts) // 2
        return [*await self._answers(starts[:middle]), *await self._answers(starts[middle:])]


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
