import asyncio
import threading
from time import perf_counter

import pytest

from noetl.local.virtual import Stalled, VirtualLoop, run_virtually


def test_an_hour_costs_nothing():
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(3600)
        return round(loop.time() - before, 3)

    before = perf_counter()
    assert run_virtually(main()) == 3600
    assert perf_counter() - before < 5


def test_timers_keep_their_order():
    async def main():
        seen = []

        async def after(seconds):
            await asyncio.sleep(seconds)
            seen.append((seconds, round(asyncio.get_running_loop().time(), 3)))

        await asyncio.gather(after(30), after(10), after(20))
        return seen

    assert run_virtually(main()) == [(10, 10), (20, 20), (30, 30)]


def test_a_timeout_comes_in_virtual_time():
    async def main():
        async with asyncio.timeout(86_400):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_virtually(main())


def test_time_stands_still_between_timers():
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.time()
        for _ in range(100):
            await asyncio.sleep(0)
        return loop.time() - before

    assert run_virtually(main()) == 0


def test_a_thread_ends_before_the_deadline_that_a_jump_would_reach():
    async def main():
        async with asyncio.timeout(60):
            return await asyncio.to_thread(lambda: "done")

    assert run_virtually(main()) == "done"


def test_time_flows_at_the_pace_of_the_machine_while_work_is_real():
    async def main():
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        timer = threading.Timer(0.05, loop.call_soon_threadsafe, (answer.set_result, "done"))
        before = loop.time()
        with loop.real():
            timer.start()
            async with asyncio.timeout(30):
                await answer
        passed = loop.time() - before
        await asyncio.sleep(0)
        return answer.result(), 0.04 < passed < 10, loop.time() - before == passed

    assert run_virtually(main()) == ("done", True, True)


def test_nothing_left_to_happen_is_an_error_and_not_a_hang():
    async def main():
        await asyncio.Event().wait()

    loop = VirtualLoop()
    with pytest.raises(Stalled):
        loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_refused_thread_is_not_counted_as_work():
    async def main():
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()
        with pytest.raises(RuntimeError):
            loop.run_in_executor(None, str)
        await asyncio.sleep(3600)
        return round(loop.time())

    assert run_virtually(main()) == 3600


def test_waiting_for_a_rest_that_is_lost_in_rounding_ends():
    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(65_400.123)
        for _ in range(2_000):
            ends = loop.time() + 0.1
            while (rest := ends - loop.time()) > 0:
                try:
                    async with asyncio.timeout(rest):
                        await asyncio.Event().wait()
                except TimeoutError:
                    continue
        return round(loop.time())

    assert run_virtually(main()) == 65_600
