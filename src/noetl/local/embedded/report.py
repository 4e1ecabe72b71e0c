"""`noetl status`: what runs in a folder, and whether it is well."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.local.embedded import record
from noetl.local.embedded.children import SERVER
from noetl.local.embedded.probe import ask, is_well

if TYPE_CHECKING:
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.record import Part, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One part as it is now."""

    name: str
    pid: int | None
    port: int | None
    health: str
    uptime_s: int | None
    version: str
    data_dir: str
    queue: int | None
    """Commands that wait for this part; none where nothing can wait."""
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A stack as it is now."""

    home: str
    state: str
    url: str
    gateway_url: str
    parts: tuple[Condition, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether every part is well."""
        return self.state == record.READY and all(part.health == "ok" for part in self.parts)


async def report(home: Home, now: datetime) -> Report | None:
    """Ask every part; none when no stack runs here."""
    stack = record.read(home.record)
    if stack is None or not stack.supervisor.is_alive:
        return None
    waiting, health = await asyncio.gather(
        _waiting(stack), asyncio.gather(*map(_health, stack.parts))
    )
    parts = tuple(
        _condition(stack, part, state, now, waiting)
        for part, state in zip(stack.parts, health, strict=True)
    )
    return Report(
        home=stack.home,
        state=stack.state,
        url=stack.url,
        gateway_url=stack.gateway_url,
        parts=parts,
    )


def _condition(
    stack: Stack, part: Part, health: str, now: datetime, waiting: dict[str, int]
) -> Condition:
    is_alive = part.identity.is_alive
    return Condition(
        name=part.name,
        pid=part.pid if is_alive else None,
        port=part.port or None,
        health=health,
        uptime_s=_age_s(part.started_at, now) if is_alive else None,
        version=stack.version if part.stage >= SERVER else "",
        data_dir=part.data_dir,
        queue=waiting.get(part.name.removeprefix("worker-")) if "worker-" in part.name else None,
        restarts=part.restarts,
    )


async def _health(part: Part) -> str:
    if not part.identity.is_alive:
        return "down"
    if not part.health:
        return "ok"
    return "ok" if await is_well(part.health) else "not ready"


async def _waiting(stack: Stack) -> dict[str, int]:
    """Commands that wait, by pool; nothing when the server does not say."""
    bearer = {"Authorization": f"Bearer {_token(stack)}"}
    answer = await ask(f"{stack.url}/api/worker/pools", bearer)
    if answer is None or answer[0] != 200:  # noqa: PLR2004 - OK
        return {}
    return {pool["pool"]: pool["pending"] for pool in json.loads(answer[1])["pools"]}


def _token(stack: Stack) -> str:
    try:
        return Path(stack.token_file).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _age_s(started_at: str, now: datetime) -> int:
    return max(0, int((now - datetime.fromisoformat(started_at)).total_seconds()))
