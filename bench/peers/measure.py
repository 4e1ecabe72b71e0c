"""Measures ours and its peers one after the other, beside one embedded stack."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import fanout, latency, raw, runs
from bench.chain import chain
from bench.machine import commit, machine
from bench.peers.children import free_port
from bench.peers.engines import OURS
from bench.peers.install import ROOT, NotInstalled, installed
from bench.peers.table import ROWS, Column, ratio
from bench.peers.workload import SINGLES
from bench.sampling import record
from bench.stack import embedded
from noetl import __version__
from noetl.settings import child_environment

if TYPE_CHECKING:
    from bench.peers.engines import Engine, Peer
    from bench.stack import Stack

MOST_S: Final = 3_600.0
"""For all workloads of one peer."""
_TAIL_BYTES: Final = 4_000


class PeerFailed(Exception):
    """A peer that is installed and did not do its work."""


async def compared(peers: list[Peer], repeat: int) -> list[Column]:
    """A column for ours, and one for each peer, whatever became of it."""
    async with embedded() as stack:
        sys.stderr.write(f"{OURS.name} ..\n")
        ours = Column(engine=OURS, records=await _ours(stack, repeat))
        columns = [ours]
        for peer in peers:
            sys.stderr.write(f"{peer.name} ..\n")
            columns.append(await _column(stack, peer, repeat, ours))
    return columns


async def _column(stack: Stack, peer: Peer, repeat: int, ours: Column) -> Column:
    try:
        home = await asyncio.to_thread(installed, peer.environment)
    except NotInstalled as fault:
        return Column(engine=peer, reason=f"cannot be installed here: {fault}")
    about = _about(peer)
    before = await raw.measure(stack.database_url, stack.nats_url)
    try:
        told = await _told(stack, peer, home, repeat)
    except PeerFailed as fault:
        return Column(engine=peer, reason=f"it failed: {fault}", is_failed=True)
    made = [_whole(about, stack, _record(one, told["facts"], before)) for one in told["measured"]]
    return Column(engine=peer, records=[_beside(one, ours) for one in made])


async def _ours(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    about = _about(OURS)
    singles = min(latency.SAMPLES, repeat * SINGLES)
    found = [
        await chain(stack, repeat),
        *await fanout.measure(stack, repeat),
        *await runs.measure(stack, repeat),
        *await latency.measure(stack, singles),
    ]
    return [_whole(about, stack, one) for one in found]


async def _told(stack: Stack, peer: Peer, home: Path, repeat: int) -> dict[str, Any]:
    """What a peer wrote down about itself; nothing of it is left running."""
    with tempfile.TemporaryDirectory(prefix="noetl-peer-") as name:
        folder = Path(name)
        out, log = folder / "measured.json", folder / "said.log"
        given = {name: value.format(port=free_port()) for name, value in peer.environ.items()}
        words = [
            home / "bin" / "python", "-m", f"bench.peers.{peer.module}", *peer.options,
            "--repeat", str(repeat), "--folder", folder, "--home", home,
            "--database-url", stack.database_url, "--out", out,
        ]  # fmt: skip
        with log.open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *words, cwd=ROOT, env=child_environment() | {"HOME": name} | given,
                stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            try:
                async with asyncio.timeout(MOST_S):
                    code = await process.wait()
            except TimeoutError:
                code = -1
            finally:
                await _end(process)
        if code or not out.exists():
            sys.stderr.write(log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace") + "\n")
            raise PeerFailed(last(log) if code >= 0 else f"no end after {MOST_S:g} s")
        told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return told


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it said nothing")


def _record(one: dict[str, Any], facts: dict[str, Any], before: raw.Raw) -> dict[str, Any]:
    params = one["params"] | facts
    return record(**(one | {"params": params}), raw=before.as_json())


def _beside(one: dict[str, Any], ours: Column) -> dict[str, Any]:
    """A record with how it stands to ours."""
    own = ours.of(ROWS[one["name"]][1])
    times = ratio(one, own) if own else None
    return one if times is None else one | {"ratios": {"ours_is_faster": round(times, 3)}}


def _about(engine: Engine) -> dict[str, Any]:
    return {
        "scenario": "peers",
        "version": __version__,
        "commit": commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a record of a real run
        "machine": machine(),
        "engine": engine.title,
        "kept": engine.kept,
    }


def _whole(about: dict[str, Any], stack: Stack, one: dict[str, Any]) -> dict[str, Any]:
    made = {name: value for name, value in one.items() if name != "on"}
    return about | made | {"machine": about["machine"] | stack.facts}
