"""Watches jobs and pods of a namespace; every job that ends is told to the server once.

All is listed anew each minute, so nothing that happened while nobody watched is missed. A job that
the server knows of carries a note, which the next watcher reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.api.problems import Refused
from noetl.errors import NoetlError
from noetl.tools.container import names
from noetl.tools.container.kubernetes import ApiRefused
from noetl.tools.container.polling import log_of, secrets_of
from noetl.tools.container.states import deleted, ended, is_reported, stalled
from noetl.tools.container.supervise import wanted
from noetl.tools.container.ticket import End, Ticket

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.clock import Clock
    from noetl.tools.container.kubernetes import Cluster
    from noetl.tools.container.report import Messenger

    Thing = dict[str, Any]

_OWNER: Final = "job-name"
_NOT_FOUND: Final = 404

_log = logging.getLogger("noetl.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the watcher looks."""

    relist_s: float = 60.0
    tick_s: float = 5.0
    stall_s: float = 60.0
    """How long an image may not be had before its job is given up."""
    again_s: float = 1.0
    """The rest after the API did not answer."""


class Watcher:
    """Knows the jobs of one namespace."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        cluster: Cluster,
        namespace: str,
        client: Client,
        messenger: Messenger,
        clock: Clock,
        pace: Pace | None = None,
    ) -> None:
        self.tally: Counter[tuple[str, str]] = Counter()
        """Jobs by runtime and state, as told."""
        self._cluster = cluster
        self._namespace = namespace
        self._client = client
        self._messenger = messenger
        self._clock = clock
        self._pace = pace or Pace()
        self._jobs: dict[str, Thing] = {}
        self._pods: dict[str, dict[str, Thing]] = {}
        self._stalls: dict[str, float] = {}
        self._told: dict[str, str] = {}
        """By uid: the state that the server knows, until the job says so itself."""
        self._telling: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                try:
                    await self._round()
                except (ApiRefused, OSError) as fault:
                    if not (isinstance(fault, ApiRefused) and fault.reason == "Expired"):
                        _log.warning("the cluster is listed anew", extra={"reason": str(fault)})
                    await asyncio.sleep(self._pace.again_s)
        finally:
            tasks = list(self._telling.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _round(self) -> None:
        """List everything, then follow the changes for a while."""
        cluster, space = self._cluster, self._namespace
        pods, pods_version = await cluster.listed("pods", space)
        jobs, jobs_version = await cluster.listed("jobs", space)
        await self._listed(jobs, pods)
        tasks = [
            asyncio.create_task(self._follow("jobs", jobs_version)),
            asyncio.create_task(self._follow("pods", pods_version)),
            asyncio.create_task(self._tick()),
        ]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=self._pace.relist_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listed(self, jobs: list[Thing], pods: list[Thing]) -> None:
        for pod in pods:
            self._keep(pod)
        there = {job["metadata"]["name"]: job for job in jobs}
        for name in self._jobs.keys() - there.keys():
            self._gone(self._jobs[name])
        for job in there.values():
            self._seen(job)
            state = self._told.get(job["metadata"]["uid"])
            if state is not None and not is_reported(job):
                await self._cluster.mark(self._namespace, job["metadata"]["name"], state)

    async def _follow(self, kind: str, version: str) -> None:
        pace = self._pace
        changes = self._cluster.watch(kind, self._namespace, version, pace.relist_s)
        async for change, thing in changes:
            if change == "BOOKMARK":
                continue
            if kind == "pods":
                self._keep(thing)
                name = _job_of(thing)
                if name in self._jobs:
                    self._seen(self._jobs[name])
            elif change == "DELETED":
                self._gone(thing)
            else:
                self._seen(thing)

    # ------------------------------------------------------------------ what is seen

    def _keep(self, pod: Thing) -> None:
        """Remember a pod as it was last, also when it is gone: its job may ask for the reason."""
        self._pods.setdefault(_job_of(pod), {})[pod["metadata"]["name"]] = pod

    def _seen(self, job: Thing) -> None:
        name = job["metadata"]["name"]
        before = self._jobs.get(name)
        if before is not None and before["metadata"]["uid"] != job["metadata"]["uid"]:
            self._gone(before)
        self._jobs[name] = job
        if self._is_open(job) and (end := ended(job, self._of(job))) is not None:
            self._tell(job, end)

    def _gone(self, job: Thing) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        known = self._jobs.get(name)
        if known is not None and known["metadata"]["uid"] == uid:
            del self._jobs[name]
        if self._is_open(job):
            self._tell(job, deleted(job, self._of(job)))
        else:
            self._told.pop(uid, None)
        self._stalls.pop(uid, None)
        if name not in self._jobs:
            self._pods.pop(name, None)

    def _is_open(self, job: Thing) -> bool:
        """Whether it is a job of ours of which the server has yet to hear."""
        uid = job["metadata"]["uid"]
        notes = job["metadata"].get("annotations") or {}
        is_ours = names.EXECUTION in notes and names.STEP in notes and names.COMMAND in notes
        is_known = uid in self._told or uid in self._telling
        return is_ours and not is_reported(job) and not is_known

    def _of(self, job: Thing) -> list[Thing]:
        """The pods of a job, not those of another one that had its name before."""
        uid = job["metadata"]["uid"]
        pods = self._pods.get(job["metadata"]["name"], {}).values()
        return [pod for pod in pods if _owner(pod) in {None, uid}]

    # ------------------------------------------------------------------ now and then

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._pace.tick_s)
            opened = [job for job in self._jobs.values() if self._is_open(job)]
            self._look_for_stalls(opened)
            try:
                await self._stop_unwanted(opened)
            except NoetlError as fault:  # the server is away: the next look asks again
                _log.warning("nobody says which jobs are wanted", extra={"reason": str(fault)})

    def _look_for_stalls(self, jobs: list[Thing]) -> None:
        now = self._clock.monotonic()
        for job in jobs:
            uid, why = job["metadata"]["uid"], stalled(self._of(job))
            if why is None:
                self._stalls.pop(uid, None)
            elif now - self._stalls.setdefault(uid, now) >= self._pace.stall_s:
                self._tell(job, End(state="failed_image_pull", reason=why), is_deleted=True)

    async def _stop_unwanted(self, jobs: list[Thing]) -> None:
        """Delete jobs whose commands have ended; those of runs that nobody knows are left."""
        tickets = {_ticket(job).command_id: job for job in jobs}
        over = await wanted(self._client, map(_ticket, tickets.values()))
        for command_id in over:
            job = tickets.get(command_id)
            if job is None or not self._is_open(job) or not await self._is_known(job):
                continue
            about = job["metadata"]
            self._told[about["uid"]] = "cancelled"
            await self._cluster.stop(self._namespace, about["name"], about["uid"])
            self.tally["kubernetes", "cancelled"] += 1

    async def _is_known(self, job: Thing) -> bool:
        try:
            await self._client.status(_ticket(job).execution_id)
        except Refused as fault:
            if fault.problem.status == _NOT_FOUND:
                return False
            raise
        return True

    # ------------------------------------------------------------------ what is told

    def _tell(self, job: Thing, end: End, *, is_deleted: bool = False) -> None:
        uid, pods = job["metadata"]["uid"], self._of(job)
        task = asyncio.create_task(self._report(job, end, pods, is_deleted=is_deleted))
        self._telling[uid] = task
        task.add_done_callback(lambda _: self._telling.pop(uid, None))

    async def _report(self, job: Thing, end: End, pods: list[Thing], *, is_deleted: bool) -> None:
        ticket, space = _ticket(job), self._namespace
        pods = await self._fresh(job, pods)
        if end.state != "failed_image_pull":
            end = ended(job, pods) or end
        log = await log_of(self._cluster, space, pods)
        found = await secrets_of(self._cluster, ticket, self._pace.again_s)
        await self._messenger.tell(ticket, end, log, found)
        self._told[str(ticket.uid)] = end.state
        self.tally["kubernetes", end.state] += 1
        try:
            await self._cluster.mark(space, ticket.name, end.state)
            if is_deleted:
                await self._cluster.delete(space, ticket.name, ticket.uid)
        except (ApiRefused, OSError) as fault:
            about = {"job": ticket.name, "reason": str(fault)}
            _log.warning("a job cannot be marked yet", extra=about)

    async def _fresh(self, job: Thing, pods: list[Thing]) -> list[Thing]:
        """The pods as they are now: the end of a job may be seen before that of its pod."""
        try:
            found = await self._cluster.pods_of(self._namespace, job["metadata"]["name"])
        except (ApiRefused, OSError):
            return pods
        uid = job["metadata"]["uid"]
        known = {pod["metadata"]["name"]: pod for pod in pods}
        known |= {one["metadata"]["name"]: one for one in found if _owner(one) in {None, uid}}
        return list(known.values())


def _ticket(job: Thing) -> Ticket:
    about = job["metadata"]
    notes = about["annotations"]
    return Ticket(
        name=about["name"],
        runtime="kubernetes",
        execution_id=notes[names.EXECUTION],
        step=notes[names.STEP],
        command_id=notes[names.COMMAND],
        key=notes.get(names.KEY, ""),
        timeout_s=float((job.get("spec") or {}).get("activeDeadlineSeconds") or 0),
        namespace=about["namespace"],
        uid=about["uid"],
    )


def _job_of(pod: Thing) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_OWNER, ""))


def _owner(pod: Thing) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((one.get("uid") for one in owners if one.get("kind") == "Job"), None)
