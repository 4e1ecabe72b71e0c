"""Faults on purpose, at named places: nothing at all unless a test asks for them.

`NOETL_FAILPOINTS=server.append.before_commit=crash;worker.claim=delay:200` makes a server die
before a commit and a worker slow to take work. `@n` waits for the n-th time that the place is
reached, `*n` limits how often the fault happens. The settings refuse them in production.

A place on a hot path asks `if armed:` first, which costs nothing while no fault is set.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from dataclasses import dataclass
from typing import ClassVar, Final

from noetl.errors import NoetlError

POINTS: Final = (
    "server.append.before_commit",  # nothing of a batch is stored
    "server.append.after_commit",  # it is, and nobody knows
    "server.reply",  # an answer is ready and not written
    "server.claim",  # commands are given, and the worker is not told
    "server.heartbeat",  # leases are extended, and the worker is not told
    "server.deliver",  # a child is to be started, or a parent told of its end
    "server.timer",  # timers are due and have not fired
    "server.publish",  # events are to be told to the bus
    "server.published",  # the bus has them, and the outbox does not know
    "server.drain",  # no more requests are taken, what was begun ends
    "worker.claim",  # commands have come and none is begun
    "worker.ack",  # a hint is to be acknowledged
    "worker.heartbeat",  # a beat is to be sent
    "worker.tool.start",  # a tool is to run
    "worker.tool.end",  # it has run, and nothing is told
    "worker.report.before",  # a report is to be sent
    "worker.report.after",  # it was answered, and the answer is not heeded
    "worker.drain",  # unstarted work was given back, the rest runs
    "subscription.fetch",  # messages have come, and nothing is done with them
    "subscription.put",  # a message is to be stored in the spool
    "subscription.stored",  # it is, and its source is not told
    "subscription.ack",  # runs are started, and their messages are not acknowledged
    "subscription.acked",  # they are, and nobody knows
    "subscription.replay",  # a waiting message has its run, and still waits
    "subscription.redrive",  # a dead letter has its run, and is still one
    "subscription.delete",  # it waits no more, and nobody knows
    "migration.apply",  # a script has run, and its transaction is open
    "migration.applied",  # it is committed, the next one is not begun
)
"""Every place there is; a scenario of `tests/reliability` kills a process at each of them."""
_FORM: Final = re.compile(r"(crash|error|hang|delay:(\d{1,6}))(?:@(\d{1,6}))?(?:\*(\d{1,6}))?")
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Fault:
    """What happens at a place, after how many times, and how often."""

    what: str
    spared: int
    left: int


armed: Final[dict[str, Fault]] = {}
"""The faults that are set, by place; empty unless a test asks for some."""


class BadFailpoint(NoetlError):
    """A fault that nobody can make."""

    code = "bad_setting"


class Injected(NoetlError):
    """An error that a test has asked for."""

    code = "injected"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 503


def configure(text: str, env: str = "dev") -> None:
    """Set the faults of this process; an empty text takes them all away."""
    faults: dict[str, Fault] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, _, what = (part.strip() for part in item.partition("="))
        found = _FORM.fullmatch(what)
        if found is None:
            raise BadFailpoint(
                f"{item!r} is not a fault",
                hint="name=crash, error, hang or delay:<ms>; `@n` when, `*n` how often",
            )
        if name not in POINTS:
            raise BadFailpoint(f"there is no failpoint {name!r}", hint=", ".join(POINTS))
        faults[name] = Fault(found[1], max(0, int(found[3] or 1) - 1), int(found[4] or -1))
    if faults and env == "production":
        raise BadFailpoint("NOETL_FAILPOINTS makes faults on purpose: never in production")
    armed.clear()
    armed.update(faults)


async def failpoint(name: str) -> None:
    """A place where a fault may be."""
    fault = armed.get(name)
    if fault is None or fault.left == 0:
        return
    if fault.spared:
        fault.spared -= 1
        return
    fault.left -= 1
    _log.warning("a fault on purpose", extra={"failpoint": name, "fault": fault.what})
    if fault.what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.what == "error":
        raise Injected(f"the failpoint {name} was asked to fail")
    elif fault.what == "hang":
        await asyncio.Event().wait()
    else:
        await asyncio.sleep(int(fault.what.partition(":")[2]) / 1000)
