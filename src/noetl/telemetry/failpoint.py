"""Faults on purpose, at named places: nothing at all unless a test asks for them.

`NOETL_FAILPOINTS=commit.before=crash;claim.after=delay:200` makes the process die before a commit
and a claim slow. The names are those in the code; the settings refuse them in production.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import ClassVar, Final

from noetl.errors import NoetlError

_FORM: Final = re.compile(r"(crash|error|hang|delay:(\d{1,6}))(?:\*(\d{1,6}))?")
_active: dict[str, list[str | int]] = {}


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
    faults: dict[str, list[str | int]] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, _, what = item.partition("=")
        found = _FORM.fullmatch(what.strip())
        if found is None:
            raise BadFailpoint(
                f"{item!r} is not a fault",
                hint="name=crash, error, hang or delay:<ms>; `*n` limits how often",
            )
        faults[name.strip()] = [found[1], int(found[3] or -1)]
    if faults and env == "production":
        raise BadFailpoint("NOETL_FAILPOINTS makes faults on purpose: never in production")
    _active.clear()
    _active.update(faults)


async def failpoint(name: str) -> None:
    """A place where a fault may be."""
    if _active and name in _active:
        await _fail(name)


async def _fail(name: str) -> None:
    fault = _active[name]
    what, left = str(fault[0]), int(fault[1])
    if left == 0:
        return
    fault[1] = left - 1
    if what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "error":
        raise Injected(f"the failpoint {name} was asked to fail")
    elif what == "hang":
        await asyncio.Event().wait()
    else:
        await asyncio.sleep(int(what.partition(":")[2]) / 1000)
