"""A token of one pool, on every route of workers: nothing of another pool is touched by it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from noetl.engine.events import CommandLate
from noetl.server.access.permissions import TABLE
from tests.security.people import INNER, ask, asked, person, started
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
PERMISSIONS = {"event:write", "runtime:write", "command:claim"}
POOLLESS = {
    "/api/executions/{execution_id}/cancellation-check",
    "/api/subscriptions/{subscription_id}/deliveries",
    "/api/subscriptions/{subscription_id}/dead-letters",
}
"""Runs and subscriptions are of no pool."""
REFUSED = (403, "pool_forbidden")
KEY = base64.b64encode(bytes(32)).decode()


@dataclass
class Scene:
    """A worker `w` of the pool `shared` that holds a command, and a token of the pool `gpu`."""

    r: Any
    foreign: str
    own: str
    run: str
    command: dict[str, Any]

    def event(self, name: str = "call.done", number: int = 1, **more: Any) -> dict[str, Any]:
        return {
            "execution_id": self.run, "event_id": str(4711 + number), "event_type": name,
            "step": "start", "command_id": self.command["command_id"], "attempt": 1,
            "payload": {"result": 1}, **more,
        }  # fmt: skip

    def line(self, **more: Any) -> dict[str, Any]:
        return {
            "execution_id": self.run, "command_id": self.command["command_id"], "attempt": 1,
            "n": 1, "ts": "2026-01-01T00:00:00.000000Z", "text": "x", **more,
        }  # fmt: skip

    def body(self, path: str) -> dict[str, Any]:
        """What a foreign worker sends there to harm `w`."""
        held = {"command_id": self.command["command_id"], "attempt": 1}
        entry = {
            "name": "w",
            "kind": "worker_pool",
            "runtime": {"pool": "gpu", "worker_public_key": KEY},
        }
        named = {"name": "w", "kind": "worker_pool"}
        bodies: dict[str, dict[str, Any]] = {
            "/api/events/batch": {"worker_id": "w", "pool": "shared", "events": [self.event()]},
            "/api/logs/batch": {"entries": [self.line()]},
            "/api/events": self.event() | {"worker_id": "w"},
            "/api/commands/claim": {"worker_id": "w", "pool": "shared", "free_slots": 1},
            "/api/commands/heartbeat": {"worker_id": "w", "commands": [held]},
            "/api/commands/release": {"worker_id": "w", "commands": [held]},
            "/api/commands/{event_id}": {},
            "/api/commands/{event_id}/claim": {"worker_id": "w"},
            "/api/commands/{event_id}/heartbeat": {"worker_id": "w", "attempt": 1},
            "/api/commands/{event_id}/release": {"worker_id": "w", "attempt": 1},
            "/api/commands/{event_id}/container-callback": {
                "state": "succeeded", "job_name": "j",
            },
            "/api/worker/pools/{pool}/drain": {},
        }  # fmt: skip
        for place in ("/api/worker/pool", "/api/runtime"):
            bodies[f"{place}/register"] = entry
            bodies[f"{place}/heartbeat"] = named | {"commands": [held]}
            bodies[f"{place}/deregister"] = named
        return bodies[path]

    async def seen(self) -> tuple[Any, ...]:
        """All that a foreign worker could have changed."""
        row = await self.r.store.commands.get(self.command["command_id"])
        (worker,) = await self.r.store.runtimes.listed("worker_pool")
        return row, worker, await self.lines(), await self.r.store.log.read(self.run)

    async def lines(self) -> list[Any]:
        return list(await self.r.store.output.read(self.run))


async def scene(r: Any, body: str = ONE_STEP) -> Scene:
    admin = await person(r, "admin")
    own = await person(r, "worker", pool="shared")
    foreign = await person(r, "worker", pool="gpu", name="elsewhere")
    await ask(r, admin, "POST", "/api/catalog/register", {"content": HEAD + body})
    await ask(r, own, "POST", "/api/worker/pool/register", {
        "name": "w", "runtime": {"pool": "shared"},
    })  # fmt: skip
    run = await started(r, admin, "demo/it")
    claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
    _, told = await ask(r, own, "POST", "/api/commands/claim", claim)
    return Scene(r, foreign, own, run, told["claimed"][0])


@virtually
async def test_every_route_of_workers_refuses_what_is_of_another_pool() -> None:
    async with rig(**SHUT) as r:
        s = await scene(r)
        before = await s.seen()
        answers = {}
        for route in r.server.asgi.routes:
            if route.permission in PERMISSIONS and route.path not in POOLLESS:
                method, path = asked(route, event_id=s.command["event_id"], pool="shared")
                status, told = await ask(r, s.foreign, method, path, s.body(route.path))
                answers[method, route.path] = status, told.get("code", "")
        drain = ("POST", "/api/worker/pools/{pool}/drain")
        beat = ("POST", "/api/commands/heartbeat")
        refused = dict.fromkeys(answers, REFUSED)
        assert answers == refused | {drain: (403, "forbidden"), beat: (200, "")}
        assert await s.seen() == before


def test_the_marks_of_workers_are_those_that_this_file_is_about() -> None:
    assert {TABLE[name]["worker"] for name in PERMISSIONS} == {"o"}


@virtually
async def test_what_a_batch_says_of_another_pool_is_rejected_alone() -> None:
    async with rig(**SHUT) as r:
        s = await scene(r)
        before = await s.seen()
        events = [
            s.event(number=1),
            s.event("command.heartbeat", number=2),
            s.event(number=3, command_id="77"),
            s.event("command.nonsense", number=4),
        ]
        body = {"worker_id": "w", "pool": "gpu", "events": events}
        status, told = await ask(r, s.foreign, "POST", "/api/events/batch", body)
        assert (status, [(one["outcome"], one.get("code")) for one in told["results"]]) == (
            200,
            [("rejected", "pool_forbidden")] * 3 + [("rejected", "unknown_event_type")],
        )
        held = {"command_id": s.command["command_id"], "attempt": 1}
        beat = {"worker_id": "w", "commands": [held]}
        _, told = await ask(r, s.foreign, "POST", "/api/commands/heartbeat", beat)
        assert (told["extended"], told["lost"], told["cancel"]) == ([], [held["command_id"]], [])
        assert await s.seen() == before


@virtually
async def test_lines_name_a_command_of_the_pool_and_its_run() -> None:
    async with rig(**SHUT) as r:
        s = await scene(r)
        for line in (s.line(execution_id="77"), s.line(command_id="77")):
            entries = {"entries": [s.line(n=2), line]}
            status, told = await ask(r, s.own, "POST", "/api/logs/batch", entries)
            assert (status, told["code"]) == REFUSED
        assert await s.lines() == []
        status, told = await ask(r, s.own, "POST", "/api/logs/batch", {"entries": [s.line()]})
        assert (status, told["count"]) == (200, 1)


@virtually
async def test_reports_of_an_ended_command_are_late_in_its_own_pool_and_rejected_in_others() -> (
    None
):
    async with rig(**SHUT) as r:
        s = await scene(r)

        async def outcome(token: str, pool: str, number: int) -> tuple[str, str | None]:
            events = [s.event(number=number)]
            body = {"worker_id": "w", "pool": pool, "events": events}
            _, told = await ask(r, token, "POST", "/api/events/batch", body)
            (one,) = told["results"]
            return one["outcome"], one.get("code")

        assert await outcome(s.own, "shared", 1) == ("stored", None)
        assert await outcome(s.foreign, "gpu", 2) == ("rejected", "pool_forbidden")
        assert await outcome(s.own, "shared", 1) == ("duplicate", None)
        assert await outcome(s.own, "shared", 3) == ("late", None)
        late = [one for one in await r.store.log.read(s.run) if isinstance(one.event, CommandLate)]
        assert len(late) == 1


@virtually
async def test_a_repeated_report_of_the_pool_is_answered_with_what_its_worker_was_given() -> None:
    async with rig(**SHUT) as r:
        s = await scene(r, TWO_STEPS)
        events = [s.event("command.started", number=1), s.event(number=2)]
        body = {"worker_id": "w", "pool": "shared", "events": events, "free_slots": 1}
        _, first = await ask(r, s.own, "POST", "/api/events/batch", body)
        _, again = await ask(r, s.own, "POST", "/api/events/batch", body)
        assert [one["node_name"] for one in first["claimed"]] == ["end"]
        assert again["claimed"] == first["claimed"]
        assert [one["outcome"] for one in again["results"]] == ["duplicate"] * 2


@virtually
async def test_a_name_is_free_for_another_pool_once_its_worker_is_silent() -> None:
    async with rig(**SHUT) as r:
        s = await scene(r)
        path, entry = "/api/worker/pool/register", s.body("/api/worker/pool/register")
        status, told = await ask(r, s.foreign, "POST", path, entry)
        assert (status, told["code"]) == REFUSED
        later = "2126-01-01T00:00:00.000000Z"
        await r.store.runtimes.forget(later)
        assert (await ask(r, s.foreign, "POST", path, entry))[0] == 200
        status, told = await ask(r, s.own, "POST", "/api/worker/pool/heartbeat", {"name": "w"})
        assert (status, told["code"]) == REFUSED


@virtually
async def test_a_worker_is_no_gateway_on_any_route_of_processes() -> None:
    async with rig(**SHUT) as r:
        s = await scene(r)
        gateway = {"name": "g", "kind": "gateway"}
        for action in ("register", "heartbeat", "deregister"):
            path = f"/api/worker/pool/{action}"
            status, told = await ask(r, s.own, "POST", path, gateway)
            assert (status, told["code"]) == (403, "forbidden"), action
