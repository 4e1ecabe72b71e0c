"""R9: bodies that are no requests, messages without sense, handlers that kill; the rest goes on.

A handler that kills its worker is lost three times and fails then, with a reason; one that ends
its own process fails at once. The scenario starts a worker that has ended again, as `noetl up`
does. A message that no playbook takes is put aside with its reason and what it said, and runs when
it is sent again to one that does.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from textwrap import indent
from urllib.parse import urlsplit

from noetl.clock import SystemClock
from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.scenario import Verdict, passable
from tests.reliability.senders import PATHS, Senders
from tests.reliability.work import HEAD, Work, chain, fanout

ROUTES = ("/api/execute", "/api/execute/batch", "/api/catalog/register", "/api/events/batch")
HUGE = 100 << 20
PIECE = b"x" * (64 << 10)
DEEP = 10_000
BODIES = {
    "invalid_utf8": (b'{"path": "\xff\xfe\xc3"}', {400, 422}),
    "nested": (b'{"payload": ' + b"[" * DEEP + b"]" * DEEP + b"}", {400, 422}),
    "wrong_schema": (b'{"path": {"a": [1]}, "content": 7, "events": "none"}', {400, 422}),
    "huge": (None, {413}),
}
MESSAGES = {
    "invalid_utf8": b'{"n": "\xff\xfe\xc3"}',
    "nested": b"[" * DEEP + b"]" * DEEP,
    "no_object": b"17",
    "empty": b"",
    "large": b"\xff" * (600 << 10),
}
ANYTHING = f"{HEAD.replace('NAME', 'absent')}workflow:\n  - step: start\n    tool: {{kind: noop}}\n"
DEADLY = {
    "kills_its_worker": ("import os\nos.kill(os.getppid(), 9)\n", "lease_exhausted"),
    "ends_its_process": ("import os\nos._exit(9)\n", "exit_9"),
}
ATTEMPTS = 3
MOST_RSS_MB = 50
AGAIN_S = 0.5
ANSWER_S = 30.0
ENDS_S = 90.0


async def play(plan):
    """Send bodies without sense, and start deadly runs among others."""
    verdict = Verdict(name="poison", seed=plan.seed, is_mid_tool=True)
    async with plan.stack() as stack, Ledger().open() as ledger:
        stack.add_server()
        stack.add_worker(slots=4, NOETL_PYTHON_SANDBOX="off")
        stack.add_listener(*PATHS)
        await stack.start("server", "worker")
        load = Load(stack, ledger, [chain(3), fanout(4)])
        load.pause_s = 0.5
        pid, before_mb = stack.pid("server"), rss_mb(stack.pid("server"))
        async with _kept(stack, verdict), load.going():
            await _neighbour(stack, ledger, verdict, "first_s")  # nothing is warm yet
            for _ in range(4):
                await _neighbour(stack, ledger, verdict, "alone_s")
            while not verdict.schedule or plan.left_s > 0:
                drawn = {
                    "deadly": plan.random.choice(sorted(DEADLY)),
                    "bodies": [(plan.random.choice(ROUTES), name)
                               for name in plan.random.sample(sorted(BODIES), len(BODIES))],
                }  # fmt: skip
                verdict.schedule.append(drawn)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_deadly(stack, ledger, drawn["deadly"], verdict))
                    group.create_task(_posted(stack, drawn["bodies"], verdict))
                    group.create_task(_neighbour(stack, ledger, verdict, "beside_s"))
            await _messages(stack, ledger, passable("spool-", plan.folder), verdict)
        await load.judged(verdict)
        if stack.parts["server"].pid != pid:
            verdict.wrong.append("the server has ended")
        grown_mb = rss_mb(stack.pid("server")) - before_mb
        verdict.measured["server_grown_mb"] = round(grown_mb, 1)
        if grown_mb > MOST_RSS_MB:
            verdict.wrong.append(f"the server has grown by {grown_mb:.0f} MB")
    for name in ("first_s", "alone_s", "beside_s"):
        verdict.measured[name] = max(verdict.measured.get(name, [0.0]))
    return verdict


@asynccontextmanager
async def _kept(stack, verdict):
    """Start the worker again whenever it has ended."""
    verdict.measured["worker_deaths"] = 0

    async def keep():
        while True:
            await stack.parts["worker"].wait()
            verdict.measured["worker_deaths"] += 1
            await asyncio.sleep(AGAIN_S)
            await stack.start("worker")

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait((keeping,))


def rss_mb(pid):
    """What a process holds in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmRSS:"))
    return int(found.split()[1]) / 1024


def deadly(name):
    """A playbook whose only step ends more than itself."""
    code = indent(DEADLY[name][0], "        ")
    text = (
        f"{HEAD.replace('NAME', name)}workflow:\n  - step: start\n"
        f"    tool:\n      kind: python\n      code: |\n{code}"
    )
    return Work(name, text, None)


async def _deadly(stack, ledger, name, verdict):
    """Start a deadly run; it fails, with its reason, after as many attempts as it may have."""
    run = await stack.insist(lambda: stack.begin(deadly(name), ledger))
    try:
        async with asyncio.timeout(ENDS_S):
            ended = await stack.ended(run)
    except TimeoutError:
        verdict.stuck.append(f"{run} ({name}) has not ended in {ENDS_S:g} s")
        return
    said = (ended.status, (ended.error or {}).get("code"))
    if said != ("FAILED", DEADLY[name][1]):
        verdict.wrong.append(f"{run} ({name}) ended as {said}")
    claims = [r for r in await stack.rows(run) if r["event_type"] == "command.claimed"]
    expected = ATTEMPTS if DEADLY[name][1] == "lease_exhausted" else 1
    if len(claims) != expected:
        verdict.wrong.append(f"{run} ({name}) was tried {len(claims)} times")


async def _messages(stack, ledger, folder, verdict):
    """Send messages without sense; each is put aside, and has one run when it is sent again."""
    senders = Senders(stack, ledger, folder)
    try:
        async with asyncio.timeout(ENDS_S), senders.here():
            await stack.start("listener")
            for name, body in MESSAGES.items():
                await senders.send_junk(body, name)
            letters = await senders.dead(len(MESSAGES))
            reasons = {(letter.reason, letter.result_ref is None) for letter in letters}
            if reasons != {("dispatch_rejected", False)}:
                verdict.wrong.append(f"messages were put aside as {reasons}")
            await senders.redrive(ANYTHING)
            await senders.dead(0)
            runs = await stack.client().executions(path="faults/absent")
            ended = [(await stack.ended(run.execution_id)).status for run in runs.items]
    except TimeoutError:
        verdict.stuck.append(f"messages without sense have no runs in {ENDS_S:g} s")
        return
    if ended != ["COMPLETED"] * len(MESSAGES):
        verdict.wrong.append(f"messages that were sent again ended as {ended}")
    await stack.parts["listener"].stop(ENDS_S)


async def _neighbour(stack, ledger, verdict, name):
    """How long a small run takes."""
    clock = SystemClock()
    began = clock.monotonic()
    await stack.ended(await stack.insist(lambda: stack.begin(chain(3), ledger)))
    verdict.measured.setdefault(name, []).append(round(clock.monotonic() - began, 3))


async def _posted(stack, bodies, verdict):
    """Send bodies one by one; each is refused as the caller's mistake."""
    for path, name in bodies:
        data, statuses = BODIES[name]
        try:
            async with asyncio.timeout(ANSWER_S):
                status, answer = await _post(stack, path, data)
        except (TimeoutError, OSError, EOFError) as fault:
            verdict.wrong.append(f"{name} at {path}: no answer ({fault!r})")
            continue
        if status not in statuses or not json.loads(answer).get("code"):
            verdict.wrong.append(f"{name} at {path} was answered {status}: {answer[:200]}")


async def _post(stack, path, data):
    """Send a body, a huge one piece by piece until somebody answers; status and answer."""
    parts = urlsplit(stack.parts["server"].url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {stack.mould.admin}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {HUGE if data is None else len(data)}\r\n\r\n"
    )
    writer.write(head.encode())
    sending = asyncio.create_task(_send(writer, data))
    try:
        status = int((await reader.readuntil(b"\r\n")).split()[1])
        length = 0
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, await reader.readexactly(length)
    finally:
        sending.cancel()
        await asyncio.wait((sending,))
        writer.close()


async def _send(writer, data):
    with suppress(OSError):
        if data is not None:
            writer.write(data)
            return
        for _ in range(HUGE // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()
