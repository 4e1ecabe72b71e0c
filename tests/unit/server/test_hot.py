"""The hot routes: being asked who one is costs the store nothing, once it was told."""

from __future__ import annotations

from collections import Counter
from typing import Any

from noetl.store.memory.store import MemoryStore
from tests.security.people import INNER, ask, person, register
from tests.unit.server.rig import rig, virtually

PORTS = (
    "tokens", "sessions", "rights", "accounts", "tenants", "audit", "executions", "catalog",
    "commands",
)  # fmt: skip


class Counted:
    """A part of a store that notes what it is asked."""

    def __init__(self, part: Any, name: str, calls: Counter[str]) -> None:
        self._part = part
        self._name = name
        self._calls = calls

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._part, method)

        async def noted(*args: Any, **more: Any) -> Any:
            self._calls[f"{self._name}.{method}"] += 1
            return await found(*args, **more)

        return noted


@virtually
async def test_a_known_token_costs_no_call_of_the_store() -> None:
    calls: Counter[str] = Counter()
    store = MemoryStore()
    for name in PORTS:
        setattr(store, name, Counted(getattr(store, name), name, calls))
    async with rig(store, is_open=False, internal_tokens=(INNER,)) as r:
        admin, worker = await person(r, "admin"), await person(r, "worker", pool="shared")
        await register(r, admin, "a/b")
        run = {"path": "a/b"}
        reports = {"worker_id": "w", "pool": "shared", "events": []}
        for bearer, path, body in (
            (admin, "/api/execute", run),
            (worker, "/api/events/batch", reports),
        ):
            assert (await ask(r, bearer, "POST", path, body))[0] == 200
            calls.clear()
            for _ in range(20):
                assert (await ask(r, bearer, "POST", path, body))[0] == 200
            asked = {name: count for name, count in calls.items() if count >= 20}
            assert (path, asked) == (path, {"catalog.resolve": 20} if bearer is admin else {})
