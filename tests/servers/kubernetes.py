"""A Kubernetes API that a test drives: jobs, pods, logs, secrets, leases, and watches of them.

It answers as a cluster does and runs nothing: the test says how the pod of a job ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

AT = "2026-01-01T00:00:00Z"


@dataclass
class FakeCluster:
    """What there is, and everything that has happened to it."""

    url: str = ""
    things: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    """By kind, namespace and name."""
    changes: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)
    """Version, kind, what happened, and the thing as it was then."""
    logs: dict[str, bytes] = field(default_factory=dict)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    lists: int = 0
    first_kept: int = 0
    """Watches of older versions are expired."""
    refusals: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, part of the path, and status: the next such call is refused."""
    on_job: Callable[[str], None] = lambda _name: None
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    """By part of a path: creations there wait."""
    holds_deleted: bool = False
    """Whether a deleted job stays with its mark until the test lets it go."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _watchers: set[asyncio.Event] = field(default_factory=set)

    # ------------------------------------------------------------------ what a test does

    def job(self, name: str, space: str = "noetl") -> dict[str, Any] | None:
        return self.things.get(("jobs", space, name))

    def jobs(self) -> list[dict[str, Any]]:
        return [thing for (kind, _, _), thing in self.things.items() if kind == "jobs"]

    def pod(self, job: str, status: dict[str, Any], suffix: str = "a", space: str = "noetl") -> str:
        """The pod of a job is in this state now."""
        owner = self.things["jobs", space, job]
        name = f"{job}-{suffix}"
        known = self.things.get(("pods", space, name))
        pod = {
            "metadata": {
                "name": name, "namespace": space, "uid": f"pod-{name}",
                "creationTimestamp": f"2026-01-01T00:00:{len(suffix):02}Z",
                "labels": {**owner["metadata"]["labels"], "job-name": job},
                "ownerReferences": [{"kind": "Job", "uid": owner["metadata"]["uid"]}],
            },
            "status": status,
        }  # fmt: skip
        self._put("pods", pod, "ADDED" if known is None else "MODIFIED")
        return name

    def finish(
        self,
        job: str,
        *,
        code: int = 0,
        message: str = "",
        reason: str = "",
        log: bytes = b"",
        **more: Any,
    ) -> None:
        """The container of a job has ended, and the job with it."""
        told = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}
        if message:
            told["message"] = message
        containers = [{"name": "main", "state": {"terminated": told}}]
        phase = "Succeeded" if code == 0 else "Failed"
        status = {"phase": phase, "containerStatuses": containers, **more}
        self.logs[self.pod(job, status)] = log
        if code == 0:
            self.condition(job, "Complete", completionTime=AT)
        else:
            self.condition(job, "Failed", "BackoffLimitExceeded")

    def condition(self, job: str, name: str, reason: str = "", **status: Any) -> None:
        """The job says of itself how it ended."""
        thing = self.things["jobs", "noetl", job]
        made = {"type": name, "status": "True", "lastTransitionTime": AT, "reason": reason,
                "message": f"job is {name}"}  # fmt: skip
        self._put("jobs", {**thing, "status": {"conditions": [made], **status}}, "MODIFIED")

    def remove(self, job: str, space: str = "noetl") -> None:
        """The job and its pods are gone."""
        for key in [key for key in self.things if key[0] == "pods" and key[2].startswith(job)]:
            self._note("pods", "DELETED", self.things.pop(key))
        thing = self.things.pop(("jobs", space, job))
        self.things.pop(("secrets", space, job), None)
        self._note("jobs", "DELETED", thing)

    def forget(self) -> None:
        """Changes so far can be watched no more."""
        self.first_kept = self._version()

    async def until(self, is_so: Callable[[], object], within_s: float = 20.0) -> None:
        """Wait until something has come true by a call or a change."""
        async with asyncio.timeout(within_s):
            while not is_so():
                self.changed.clear()
                if not is_so():
                    await self.changed.wait()

    # ------------------------------------------------------------------ inside

    def _version(self) -> int:
        return self.changes[-1][0] if self.changes else 0

    def _put(self, kind: str, thing: dict[str, Any], what: str) -> dict[str, Any]:
        about = thing["metadata"]
        made = {**thing, "metadata": {**about, "resourceVersion": str(self._version() + 1)}}
        self.things[kind, about["namespace"], about["name"]] = made
        self._note(kind, what, made)
        return made

    def _note(self, kind: str, what: str, thing: dict[str, Any]) -> None:
        self.changes.append((self._version() + 1, kind, what, thing))
        for event in (self.changed, *self._watchers):
            event.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One call."""
        parts = request.path.strip("/").split("/")
        place = parts.index("namespaces")
        space, kind, *rest = parts[place + 1 :]
        body = json.loads(raw) if (raw := await request.read()) else None
        self.calls.append((request.method, request.path, body))
        self.changed.set()
        for refusal in self.refusals:
            if request.method == refusal[0] and refusal[1] in request.path:
                self.refusals.remove(refusal)
                return _refused(refusal[2], "Refused", "as the test wants")
        if request.method == "GET" and not rest:
            if request.query.get("watch"):
                return await self._watched(request, kind, space)
            return self._listed(request, kind, space)
        if request.method == "POST":
            if kind in self.gates:
                await self.gates[kind].wait()
            return self._created(kind, space, body)
        key = (kind, space, rest[0])
        if kind == "pods" and rest[1:] == ["log"]:
            log = self.logs.get(rest[0])
            if log is None:
                return _refused(404, "NotFound", "no pod")
            return web.Response(body=log[: int(request.query["limitBytes"])])
        if key not in self.things:
            return _refused(404, "NotFound", f"{kind} {rest[0]} not found")
        return self._one(request.method, key, body)

    def _one(self, method: str, key: tuple[str, str, str], body: Any) -> web.Response:
        kind, found = key[0], self.things[key]
        if method == "GET":
            return web.json_response(found)
        if method == "PATCH":
            notes = {**found["metadata"].get("annotations", {}), **body["metadata"]["annotations"]}
            about = {**found["metadata"], "annotations": notes}
            return web.json_response(self._put(kind, {**found, "metadata": about}, "MODIFIED"))
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
                return _refused(409, "Conflict", "the object has been modified")
            return web.json_response(self._put(kind, body, "MODIFIED"))
        asked = (body or {}).get("preconditions", {}).get("uid")
        if asked not in {None, found["metadata"]["uid"]}:
            return _refused(409, "Conflict", "the uid is another one")
        about = {**found["metadata"], "deletionTimestamp": AT}
        self._put(kind, {**found, "metadata": about}, "MODIFIED")
        if not self.holds_deleted:
            self.remove(key[2], key[1])
        return web.json_response({"kind": "Status", "status": "Success"})

    def _created(self, kind: str, space: str, body: dict[str, Any]) -> web.Response:
        name = body["metadata"]["name"]
        if (kind, space, name) in self.things:
            return _refused(409, "AlreadyExists", f"{kind} {name} already exists")
        about = {**body["metadata"], "namespace": space, "uid": f"uid-{next(self._numbers)}",
                 "creationTimestamp": AT}  # fmt: skip
        made = self._put(kind, {**body, "metadata": about}, "ADDED")
        if kind == "jobs":
            asyncio.get_running_loop().call_soon(self.on_job, name)
        return web.json_response(made, status=201)

    def _listed(self, request: web.Request, kind: str, space: str) -> web.Response:
        self.lists += 1
        items = [
            thing
            for (one, where, _), thing in self.things.items()
            if (one, where) == (kind, space) and _fits(thing, request)
        ]
        about = {"resourceVersion": str(self._version())}
        return web.json_response({"metadata": about, "items": items})

    async def _watched(self, request: web.Request, kind: str, space: str) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        if version < self.first_kept:
            return _refused(410, "Expired", "too old resource version")
        response, news = web.StreamResponse(), asyncio.Event()
        await response.prepare(request)
        self._watchers.add(news)
        try:
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                while True:
                    news.clear()
                    seen, version = version, self._version()
                    for number, of, what, thing in list(self.changes):
                        is_new = seen < number <= version and of == kind
                        if (
                            is_new
                            and thing["metadata"]["namespace"] == space
                            and _fits(thing, request)
                        ):
                            line = json.dumps({"type": what, "object": thing}) + "\n"
                            await response.write(line.encode())
                    await news.wait()
        except (TimeoutError, ConnectionResetError):
            pass
        finally:
            self._watchers.discard(news)
        return response


def _fits(thing: dict[str, Any], request: web.Request) -> bool:
    wanted = dict(part.split("=") for part in request.query["labelSelector"].split(","))
    has = thing["metadata"].get("labels", {})
    return all(has.get(name) == value for name, value in wanted.items())


def _refused(status: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return web.json_response(body, status=status)


@asynccontextmanager
async def kubernetes() -> AsyncIterator[FakeCluster]:
    """A cluster at an address of this machine."""
    fake = FakeCluster()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    fake.url = f"http://127.0.0.1:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()
