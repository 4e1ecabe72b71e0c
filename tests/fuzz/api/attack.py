"""Sends the requests of one operation, and says what was wrong."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

from noetl.server.subscriptions.ending import MOST_WAIT_MS
from tests.fuzz.api.cases import (
    JSON,
    WAITS,
    WAITS_MS,
    Request,
    generated,
    operation,
    operations,
    varied,
)
from tests.fuzz.api.verdict import faults

if TYPE_CHECKING:
    from tests.fuzz.api.stage import Stage

MOST_FAULTS = 5
EACH = 12
"""Requests that are made of one that was generated."""


async def attack(
    stage: Stage, name: str, count: int, number: int
) -> tuple[list[str], Counter[int]]:
    """Faults of so many answers, and how often each status was seen."""
    chance = random.Random(f"{number}:{name}")
    made = generated(name, max(6, count // EACH), number)
    found: dict[str, str] = {}
    seen: Counter[int] = Counter()
    method, path = operations()[name]
    for request in islice(varied(name, made, stage, chance), count):
        one = _bounded(request)
        target, data = one.target(path), one.data()
        try:
            answer = await stage.ask(method, target, data, _headers(stage, name, one))
        except Exception as fault:  # noqa: BLE001 - that is what we look for
            found.setdefault(f"no answer: {fault!r}", f"{method} {target[:300]} {data[:500]!r}")
            continue
        seen[answer.status] += 1
        for fault in faults(name, one, answer):
            place = (
                f"{method} {target[:300]} {data[:500]!r} -> {answer.status} {answer.body[:300]!r}"
            )
            found.setdefault(fault, place)
        if len(found) >= MOST_FAULTS:
            break
    return [f"{fault}\n    {place}" for fault, place in found.items()], seen


def _bounded(request: Request) -> Request:
    """Nobody is to wait for work that does not come."""
    if isinstance(request.body, dict) and isinstance(request.body.get(WAITS), (int, float)):
        request.body[WAITS] = 0.01
    for key, value in request.query.items():
        if key == WAITS_MS and str(value).isdigit() and int(value) <= MOST_WAIT_MS:
            request.query[key] = 10
    return request


def _headers(stage: Stage, name: str, request: Request) -> dict[str, str]:
    headers: dict[str, Any] = {}
    if request.bearer:
        bearer = stage.bearer(operation(name)["x-noetl-permission"])
        headers["authorization"] = f"Bearer {bearer}"
    if request.body is not None and not isinstance(request.body, bytes):
        headers["content-type"] = JSON
    return headers
