"""The watcher on a cluster that the test drives: every end of a job reaches the run that waits."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.executions import Control
from noetl.telemetry.redact import Redactor
from noetl.tools.container.kubernetes import Cluster
from noetl.worker.watcher.lead import Lead, Terms
from noetl.worker.watcher.watch import Pace
from tests.servers.containers import ENVIRON, PACE, bench
from tests.servers.kubernetes import kubernetes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.kubernetes import FakeCluster

JOB = "{kind: container, image: 'img:1', runtime: kubernetes, timeout_seconds: 60}"
NOETL = (sys.executable, "-c", "import sys; from noetl.cli.app import main; sys.exit(main())")
PULLING = {
    "phase": "Pending",
    "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no img"}}}
    ],
}


def succeed(fake: FakeCluster, job: str) -> None:
    fake.finish(job, message='{"rows": 7}', log=b"line 1\nline 2\n")


def fail(fake: FakeCluster, job: str) -> None:
    fake.finish(job, code=3, log=b"broken\n")


def run_out_of_memory(fake: FakeCluster, job: str) -> None:
    fake.finish(job, code=137, reason="OOMKilled")


def lose_the_node(fake: FakeCluster, job: str) -> None:
    fake.finish(job, code=137, reason="Error", phase="Failed")
    fake.pod(job, {"phase": "Failed", "reason": "Evicted", "message": "the node is low on disk"})


def take_too_long(fake: FakeCluster, job: str) -> None:
    fake.pod(job, {"phase": "Running"})
    fake.condition(job, "Failed", "DeadlineExceeded")


def stall(fake: FakeCluster, job: str) -> None:
    fake.pod(job, PULLING)


STATES = [
    ("succeeded", succeed, None),
    ("failed", fail, "container_failed"),
    ("failed_oom", run_out_of_memory, "oom"),
    ("failed_node_lost", lose_the_node, "node_lost"),
    ("failed_timeout", take_too_long, "timeout"),
    ("failed_image_pull", stall, "config"),
]


async def noted(fake: FakeCluster, job: str) -> str:
    """What the note on a job says, as soon as there is one."""
    await fake.until(lambda: "noetl.reported" in fake.job(job)["metadata"]["annotations"])
    return str(fake.job(job)["metadata"]["annotations"]["noetl.reported"])


@pytest.mark.parametrize(("state", "end", "kind"), STATES)
async def test_every_state_reaches_the_step(state: str, end: Any, kind: str | None) -> None:
    async with bench() as b, b.watcher() as watcher:
        b.fake.on_job = lambda name: end(b.fake, name)
        run = await b.start(JOB)
        assert await b.status(run) == ("COMPLETED" if kind is None else "FAILED")
        first, *_ = await b.rows(run, "call.done")
        told = first["result"]["context"]
        assert (told["terminal_state"], first["meta"]["node_type"]) == (state, "container")
        (failed,) = await b.rows(run, "playbook.failed") or [{}]
        assert failed.get("error", {}).get("kind") == kind
        await b.fake.until(lambda: watcher.tally["kubernetes", state] == 1)
        name = told["job_name"]
        if state == "failed_image_pull":
            await b.fake.until(lambda: b.fake.job(name) is None)  # it would try for ever
            assert "no img" in told["reason"]
        else:
            assert await noted(b.fake, name) == state
        if state == "succeeded":
            assert (told["output"], told["exit_code"]) == ({"rows": 7}, 0)
            assert told["completed_at"] == "2026-01-01T00:00:00.000000Z"
            assert await b.r.client.get_result(told["stdout_uri"]) == b"line 1\nline 2\n"


async def test_a_job_that_ended_while_nobody_watched_is_reported() -> None:
    async with bench() as b:
        run = await b.start(JOB)
        (request,) = await b.parked(run)
        b.fake.finish(request["job_name"], message='{"late": true}')
        async with b.watcher():
            assert await b.status(run) == "COMPLETED"
            await noted(b.fake, request["job_name"])
        async with b.watcher() as second:  # the note says that it was told
            await b.fake.until(lambda: b.fake.lists >= 4)
            await asyncio.sleep(0.1)
            assert not second.tally
        reports = [row for row in await b.rows(run, "call.done") if "node_type" in row["meta"]]
        assert len(reports) == 1


async def test_a_job_that_somebody_deletes_has_lost_its_node() -> None:
    async with bench() as b, b.watcher():
        run = await b.start(JOB)
        (request,) = await b.parked(run)
        b.fake.pod(request["job_name"], {"phase": "Running"})
        b.fake.remove(request["job_name"])
        assert await b.status(run) == "FAILED"
        (failed,) = await b.rows(run, "playbook.failed")
        assert (failed["error"]["kind"], failed["error"]["retryable"]) == ("node_lost", True)


SECRET = "w4tcher-Canary-3310"  # noqa: S105 - looked for where it must not be
KNOWN = f"{{kind: container, image: 'img:1', runtime: kubernetes, input: {{key: '{SECRET}'}}}}"


async def test_the_watcher_covers_what_the_worker_gave_the_job() -> None:
    async with bench(redactor=Redactor((SECRET,))) as b, b.watcher():
        b.fake.refusals.append(("GET", "/secrets", 503))
        said = f'{{"n": "{SECRET}", "key": "it"}}'
        b.fake.on_job = lambda name: b.fake.finish(name, code=1, message=said, log=SECRET.encode())
        run = await b.start(KNOWN)
        assert await b.status(run) == "FAILED"
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert told["output"] == {"n": "***", "key": "it"}
        assert await b.r.client.get_result(told["stdout_uri"]) == b"***"
        assert SECRET not in str((await b.r.client.events(run, limit=1000)).items)


@pytest.mark.parametrize(("code", "status"), [(0, "COMPLETED"), (1, "FAILED")])
async def test_what_a_job_said_is_withheld_while_its_secrets_cannot_be_read(
    code: int, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(redactor=Redactor((SECRET,))) as b, b.watcher():
        b.fake.refusals.append(("GET", "/secrets", 403))
        b.fake.on_job = lambda name: b.fake.finish(
            name, code=code, message='{"n": 1}', log=SECRET.encode()
        )
        run = await b.start(KNOWN)
        assert await b.status(run) == status
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        why = "log and output are withheld: nobody knows the secrets in them"
        reason = f"BackoffLimitExceeded: job is Failed; {why}" if code else why
        assert (told["output"], told["stdout_uri"], told["reason"]) == (None, None, reason)
        lines = [line.message for line in caplog.records if "Secret" in line.message]
        assert lines == ["the Secret of a job cannot be read"]


async def test_a_watch_that_expired_or_broke_begins_with_a_new_list() -> None:
    async with bench() as b:
        b.fake.refusals += [("GET", "/jobs", 503), ("GET", "/pods", 500)]
        async with b.watcher(Pace(relist_s=0.2, tick_s=0.05, again_s=0.02)):
            run = await b.start(JOB)
            (request,) = await b.parked(run)
            b.fake.forget()
            lists = b.fake.lists
            await b.fake.until(lambda: b.fake.lists >= lists + 6)
            b.fake.finish(request["job_name"])
            assert await b.status(run) == "COMPLETED"


async def test_a_server_that_is_away_is_told_later_and_a_refusal_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from noetl.tools.container.report import Messenger  # noqa: PLC0415 - for this test alone
    from noetl.tools.container.ticket import End, Ticket  # noqa: PLC0415 - as above

    ticket = Ticket(name="j", runtime="kubernetes", execution_id="1", step="s", command_id="2",
                    key="k", timeout_s=1)  # fmt: skip
    async with bench() as b:
        calls: list[float] = []

        async def send(_ticket: Ticket, _body: Any) -> Any:
            calls.append(asyncio.get_running_loop().time())
            if len(calls) < 4:
                raise ConnectionRefusedError("away")
            return await b.r.client.container_ended("x", "s", _body)

        messenger = Messenger(b.r.client, send, step_s=0.02)
        assert await messenger.tell(ticket, End(state="failed"), b"") is None
        waits = [round((after - before) / 0.02) for before, after in pairwise(calls)]
        assert [wait >= least for wait, least in zip(waits, (1, 2, 3), strict=True)] == [True] * 3
        lines = [line for line in caplog.records if line.message == "an end of a job is refused"]
        assert len(lines) == 1


async def test_a_cancelled_run_takes_its_job_along() -> None:
    async with bench() as b, b.watcher():
        run = await b.start(JOB)
        (request,) = await b.parked(run)
        name = request["job_name"]
        await b.r.client.cancel(run, Control())
        await b.fake.until(lambda: b.fake.job(name) is None)
        deletions = [
            body for method, path, body in b.fake.calls if method == "DELETE" and name in path
        ]
        assert [body["propagationPolicy"] for body in deletions] == ["Foreground"]
        assert await b.rows(run, "call.done", "call.error") == []


async def test_jobs_of_runs_that_the_server_does_not_know_are_left_alone() -> None:
    async with bench() as b:
        run = await b.start(JOB)
        (request,) = await b.parked(run)
        job = b.fake.job(request["job_name"])
        notes = {
            **job["metadata"]["annotations"],
            "noetl.execution-id": "12",
            "noetl.command-id": "13",
        }
        job["metadata"]["annotations"] = notes
        async with b.watcher():
            await b.fake.until(lambda: b.fake.lists >= 2)
            await asyncio.sleep(4 * PACE.tick_s)
            assert b.fake.job(request["job_name"]) is not None


async def test_two_watchers_have_one_leader_and_the_second_takes_over() -> None:
    async with bench() as b:
        terms = Terms(lease_s=1.0, renew_s=0.05)
        begun: list[str] = []

        async def lead(name: str) -> None:
            cluster = Cluster.at(b.fake.url)

            async def work() -> None:
                begun.append(name)
                b.fake.changed.set()
                await asyncio.Event().wait()

            try:
                await Lead(cluster, "noetl", name, b.clock, terms).run(work)
            finally:
                await cluster.close()

        first = asyncio.create_task(lead("a"))
        await b.fake.until(lambda: begun == ["a"])
        second = asyncio.create_task(lead("b"))
        await asyncio.sleep(0.3)
        assert begun == ["a"]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await b.fake.until(lambda: begun == ["a", "b"])  # it was let go, nobody waits for its end
        lease = b.fake.things["leases", "noetl", "noetl-watcher"]
        assert lease["spec"]["holderIdentity"] == "b"
        # One whose renewals fail stops before the lease is over, and another may have it.
        b.fake.refusals += [("PUT", "/leases", 500)] * 30
        third = asyncio.create_task(lead("c"))
        await b.fake.until(lambda: len(begun) >= 3)
        assert begun[2] in {"b", "c"}
        for task in (second, third):
            task.cancel()
        await asyncio.gather(second, third, return_exceptions=True)


async def test_the_process_leads_until_it_is_told_to_stop(tmp_path: Path) -> None:
    async with kubernetes() as fake:
        named = tmp_path / "kubeconfig"
        named.write_text(json.dumps(_kubeconfig(fake.url)))
        about = {
            **ENVIRON, "HOME": str(tmp_path), "KUBECONFIG": str(named), "WORKER_ID": "w-a",
            "NOETL_INTERNAL_API_TOKEN": "watcher-canary-5521", "NOETL_HOME": str(tmp_path),
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *NOETL, "worker", "--mode", "watcher", "--namespace", "ns-1",
            "--metrics-bind", "127.0.0.1:0", env=about, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await fake.until(lambda: ("leases", "ns-1", "noetl-watcher") in fake.things, 40)
            await fake.until(lambda: fake.lists >= 2)
            assert fake.things["leases", "ns-1", "noetl-watcher"]["spec"]["holderIdentity"] == "w-a"
            process.terminate()
            _, said = await asyncio.wait_for(process.communicate(), 30)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, said.decode()
        assert b"watcher-canary-5521" not in said
        assert fake.things["leases", "ns-1", "noetl-watcher"]["spec"]["holderIdentity"] == ""


async def test_the_process_does_not_start_without_a_token_or_a_cluster(tmp_path: Path) -> None:
    words = (*NOETL, "worker", "--mode", "watcher")
    about = {**ENVIRON, "HOME": str(tmp_path), "NOETL_HOME": str(tmp_path)}
    token = {"NOETL_INTERNAL_API_TOKEN": "watcher-canary-5522"}
    for environ, told in ((about, b"NOETL_INTERNAL_API_TOKEN"), (about | token, b"no_cluster")):
        process = await asyncio.create_subprocess_exec(
            *words, env=environ, stderr=asyncio.subprocess.PIPE
        )
        _, said = await asyncio.wait_for(process.communicate(), 40)
        assert (process.returncode, told in said) == (2, True), said.decode()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
