"""The kind `container` in a run: on a cluster that the test drives, in podman, as a process."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.executions import Control
from noetl.clock import SystemClock
from noetl.telemetry.redact import Redactor
from noetl.tools.base import Parked, ToolContext, ToolError, read_config
from noetl.tools.container.kubernetes import Cluster
from noetl.tools.container.script import container_request
from noetl.tools.container.tool import ContainerTool, Site
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from tests.servers.containers import ENVIRON, bench, is_empty, records, until
from tests.servers.kubernetes import FakeCluster, kubernetes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "c0ntainer-Canary-7718"  # noqa: S105 - looked for where it must not be
SH = "{kind: container, image: img, runtime: process, timeout_seconds: 20, command: [sh, -c, %s]}"


def tool_at(fake: FakeCluster, **site: Any) -> ContainerTool:
    async def cluster() -> Cluster:
        return Cluster.at(fake.url)

    processes = Processes(Sandbox(level="rlimits"), ENVIRON)
    return ContainerTool(Site(cluster=cluster, **site), processes, SystemClock())


def context(**more: Any) -> ToolContext:
    about = {"execution_id": "380523680097099776", "step": "Load Data (EU)", "command_id": "12",
             "idempotency_key": "380523680097099776/Load Data (EU)/-/1"}  # fmt: skip
    return ToolContext(**(about | more))


def config(**more: Any) -> Any:
    given = {"kind": "container", "image": "img:1", "runtime": "kubernetes", **more}
    return read_config(ContainerTool.Config, given)


async def test_a_command_that_is_issued_twice_creates_one_job() -> None:
    async with kubernetes() as fake:
        tool = tool_at(fake)
        first = await tool.run(config(), context(attempt=1, input={"n": 1}))
        again = await tool.run(config(), context(attempt=2, input={"n": 1}))
        assert isinstance(first, Parked)
        assert again.request == first.request
        assert len(fake.jobs()) == 1
        secret = fake.things["secrets", "noetl", first.request["job_name"]]
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", first.request["job_uid"])
        other = await tool.run(config(), context(try_number=2))
        assert other.request["job_name"] != first.request["job_name"]
        assert len(fake.jobs()) == 2
        await tool.close()


async def test_a_name_that_another_has_is_refused_and_a_job_that_is_going_is_waited_for() -> None:
    async with kubernetes() as fake:
        tool = tool_at(fake)
        found = (await tool.run(config(), context())).request
        fake.holds_deleted = True
        cluster = await tool.cluster()
        await cluster.delete("noetl", found["job_name"], found["job_uid"])
        again = asyncio.create_task(tool.run(config(), context(attempt=2)))
        reads = len(fake.calls)
        await fake.until(lambda: len(fake.calls) >= reads + 2)
        fake.remove(found["job_name"])
        assert (await again).request["job_uid"] != found["job_uid"]
        fake.job(found["job_name"])["metadata"]["annotations"]["noetl.idempotency-key"] = "else"
        with pytest.raises(ToolError) as refused:
            await tool.run(config(), context())
        assert (refused.value.kind, refused.value.code) == ("config", "job_name_taken")
        await tool.close()


@pytest.mark.parametrize(
    ("status", "kind", "is_retryable"),
    [(500, "server_error", True), (429, "rate_limit", True), (403, "auth", False),
     (422, "config", False)],
)  # fmt: skip
async def test_a_cluster_that_refuses_is_an_error_of_its_kind(
    status: int, kind: str, *, is_retryable: bool
) -> None:
    async with kubernetes() as fake:
        tool = tool_at(fake)
        fake.refusals.append(("POST", "/jobs", status))
        with pytest.raises(ToolError) as refused:
            await tool.run(config(), context())
        assert (refused.value.kind, refused.value.is_retryable) == (kind, is_retryable)
        await tool.close()


async def test_a_cluster_that_does_not_answer_is_a_connection_that_failed() -> None:
    async with kubernetes() as fake:
        tool = tool_at(fake)
    with pytest.raises(ConnectionError):
        await tool.run(config(), context())
    await tool.close()


async def test_a_task_that_is_stopped_while_it_starts_a_job_deletes_it() -> None:
    async with kubernetes() as fake:
        tool, ctx = tool_at(fake), context()
        fake.gates["secrets"] = asyncio.Event()
        running = asyncio.create_task(tool.run(config(), ctx))
        await fake.until(fake.jobs)
        (job,) = fake.jobs()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await tool.cancel(ctx)
        assert fake.jobs() == []
        deletion = next(body for method, _, body in fake.calls if method == "DELETE")
        assert deletion["propagationPolicy"] == "Foreground"
        assert job["metadata"]["name"].startswith("noetl-container-load-data-eu-")
        await tool.close()


async def test_no_secret_stands_in_a_job() -> None:
    async with kubernetes() as fake:
        tool = tool_at(fake)
        ctx = context(input={"password": SECRET}, redactor=Redactor((SECRET,)))
        env = [{"name": "A", "value": "plain"}, {"name": "B", "value": f"x {SECRET}"},
               {"name": "C", "value_from": {"secret_name": "s", "secret_key": "k"}}]  # fmt: skip
        made = config(env=env, command=["run"], args=["--token", SECRET])
        name = (await tool.run(made, ctx)).request["job_name"]
        job, secret = fake.job(name), fake.things["secrets", "noetl", name]
        assert SECRET not in str(job)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {one["name"]: one for one in container["env"]}
        assert variables["A"]["value"] == "plain"
        assert variables["C"]["valueFrom"]["secretKeyRef"] == {"name": "s", "key": "k"}
        key = variables["B"]["valueFrom"]["secretKeyRef"]["key"]
        assert base64.b64decode(secret["data"][key]).decode() == f"x {SECRET}"
        word = container["args"][1].removeprefix("$(").removesuffix(")")
        key = variables[word]["valueFrom"]["secretKeyRef"]["key"]
        assert base64.b64decode(secret["data"][key]).decode() == SECRET
        assert variables["NOETL_INPUT"]["valueFrom"]["secretKeyRef"]["key"] == "input.json"
        await tool.close()


async def test_rules_pipelines_and_loops_go_on_after_their_containers() -> None:
    rules = ("spec: {policy: {rules: [{when: \"{{ output.error.kind == 'container_failed' }}\", "
             "then: {do: retry, attempts: 2, delay: 0.05}}]}}")  # fmt: skip
    job = "kind: container, image: img, runtime: kubernetes"
    async with bench() as b, b.watcher():
        ends = iter((1, 0))
        b.fake.on_job = lambda name: b.fake.finish(name, code=next(ends))
        run = await b.start(f"{{{job}, {rules}}}")
        assert await b.status(run) == "COMPLETED"
        assert len({one["job_name"] for one in await b.parked(run, 2)}) == 2

        b.fake.on_job = lambda name: b.fake.finish(name, message='{"n": 5}')
        run = await b.start(
            f"[{{name: a, kind: noop, result: 1}}, {{name: b, {job}}}, "
            '{name: c, kind: noop, result: "{{ b.output.n + a }}"}]'
        )
        assert await b.status(run) == "COMPLETED"
        (done,) = await b.rows(run, "step.exit")
        assert done["result"]["context"]["data"]["c"] == 6

        loop = "    loop: {in: 3, iterator: n, spec: {mode: parallel, max_in_flight: 3}}\n"
        b.fake.on_job = lambda name: b.fake.finish(name, message=f'{{"job": "{name}"}}')
        run = await b.start(f"{{{job}}}", more=loop)
        assert await b.status(run) == "COMPLETED"
        requests = await b.parked(run, 3)
        (done,) = await b.rows(run, "step.exit")
        found = {one["output"]["job"] for one in done["result"]["context"]["data"]}
        assert found == {one["job_name"] for one in requests}
        assert len(found) == 3


async def test_without_a_watcher_the_worker_asks() -> None:
    async with bench(is_polled=True, poll_s=0.05) as b:
        b.fake.on_job = lambda name: b.fake.finish(name, message='{"n": 5}', log=b"hello\n")
        run = await b.start("{kind: container, image: img, runtime: kubernetes}")
        assert await b.status(run) == "COMPLETED"
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert (told["terminal_state"], told["output"]) == ("succeeded", {"n": 5})
        assert await b.r.client.get_result(told["stdout_uri"]) == b"hello\n"
        b.fake.on_job = lambda _name: None
        run = await b.start("{kind: container, image: img, runtime: kubernetes}")
        (request,) = await b.parked(run)
        await b.r.client.cancel(run, Control())
        await b.fake.until(lambda: b.fake.job(request["job_name"]) is None)


# ------------------------------------------------------------------ processes


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [
        ("'echo hi; echo oh >&2'", "succeeded", 0),
        ("'exit 4'", "failed", 4),
        ("'exec /no/such/program'", "failed", 127),
        ("'kill -9 $$'", "failed", 137),
    ],
)
async def test_a_process_ends_in_one_of_the_states(script: str, state: str, code: int) -> None:
    async with bench(may_run_processes=True) as b:
        run = await b.start(SH % script)
        assert await b.status(run) == ("COMPLETED" if state == "succeeded" else "FAILED")
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert (told["terminal_state"], told["exit_code"]) == (state, code)
        if state == "succeeded":
            lines = (await b.r.client.get_result(told["stdout_uri"])).splitlines()
            assert sorted(lines) == [b"hi", b"oh"]


async def test_a_process_reads_its_input_and_leaves_its_last_word() -> None:
    script = '''"test \\"$NOETL_STEP\\" = job && cat noetl/input.json > $NOETL_TERMINATION_LOG"'''
    async with bench(may_run_processes=True) as b:
        run = await b.start(SH.replace("}", ", input: {n: [1, 2]}}") % script)
        assert await b.status(run) == "COMPLETED"
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert told["output"] == {"n": [1, 2]}


async def test_a_process_that_takes_too_long_is_ended() -> None:
    async with bench(may_run_processes=True) as b:
        run = await b.start(SH.replace("20", "1") % "'sleep 600'")
        assert await b.status(run) == "FAILED"
        (failed,) = await b.rows(run, "playbook.failed")
        assert (failed["error"]["kind"], failed["error"]["code"]) == (
            "timeout",
            "container_timeout",
        )


async def test_a_process_of_a_cancelled_run_is_ended(tmp_path: Path) -> None:
    async with bench(tmp_path, may_run_processes=True) as b:
        run = await b.start(SH % "'sleep 600'")
        await b.parked(run)
        assert len(records(tmp_path)) == 1
        await b.r.client.cancel(run, Control())
        await until(lambda: b.tool.tally["process", "cancelled"])
        assert records(tmp_path) == []
        assert await b.rows(run, "call.done", "call.error") == []


async def test_a_process_that_died_with_its_worker_is_told_by_the_next(tmp_path: Path) -> None:
    async with bench(tmp_path, may_run_processes=True) as b:
        run = await b.start(SH % "'sleep 600'")
        await b.parked(run)
        await b.tool.close()  # the worker is killed
        fresh = tool_at(b.fake, home=tmp_path)
        assert await fresh.adopt(b.r.client) == 1
        assert await b.status(run) == "FAILED"
        (failed,) = await b.rows(run, "playbook.failed")
        assert failed["error"]["kind"] == "node_lost"
        await fresh.close()
        assert records(tmp_path) == []


async def test_a_secret_that_a_container_prints_is_covered() -> None:
    async with bench(redactor=Redactor((SECRET,)), may_run_processes=True) as b:
        run = await b.start(SH % f"'echo {SECRET}; exit 1'")
        await b.status(run)
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert await b.r.client.get_result(told["stdout_uri"]) == b"***\n"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (f"'echo no {SECRET} >&2; exit 3'", "FAILED"),
        (f"""'echo "{{\\\"said\\\": \\\"{SECRET}\\\"}}" > $NOETL_TERMINATION_LOG'""", "COMPLETED"),
    ],
)  # fmt: skip
async def test_a_secret_in_the_end_of_a_container_is_covered(script: str, status: str) -> None:
    async with bench(redactor=Redactor((SECRET,)), may_run_processes=True) as b:
        run = await b.start(SH % script)
        assert await b.status(run) == status
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        said = {"FAILED": ("exit code 3: no ***", None), "COMPLETED": (None, {"said": "***"})}
        assert (told["reason"], told["output"]) == said[status]
        assert SECRET not in str((await b.r.client.events(run, limit=1000)).items)


async def test_a_short_secret_is_covered_after_its_command_has_let_it_go() -> None:
    pin = "p1n4"
    redactor = Redactor((pin,))
    async with bench(may_run_processes=True, look_s=600) as b:
        made = config(runtime="process", command=["sh", "-c", "echo pin $PIN pinned >&2; exit 2"],
                      env={"PIN": pin})  # fmt: skip
        fresh = Told()
        await b.tool.run(made, context(client=fresh, redactor=redactor))
        redactor.release(pin)
        await until(lambda: fresh.bodies)
        assert fresh.bodies[0].reason == "exit code 2: pin *** pinned"
        assert redactor.redact(pin) == pin


class Told:
    """A server that hears of ends alone."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.logs: list[bytes] = []

    async def put_result(self, _run: str, _step: str, data: bytes, _media: str) -> dict[str, str]:
        self.logs.append(data)
        return {"ref": "noetl://execution/1/result/s/1"}

    async def container_of_command(self, _command_id: str, body: Any) -> None:
        self.bodies.append(body)


async def test_a_job_that_is_found_again_has_its_secrets_covered(tmp_path: Path) -> None:
    async with bench(tmp_path, redactor=Redactor((SECRET,)), is_polled=True, poll_s=0.05) as b:
        run = await b.start(
            f"{{kind: container, image: img, runtime: kubernetes, input: {{key: {SECRET}}}}}"
        )
        (request,) = await b.parked(run)
        await until(lambda: records(tmp_path))
        await b.tool.close()  # the worker is killed, and the next one knows nothing
        fresh = tool_at(b.fake, home=tmp_path, poll_s=0.05)
        b.fake.refusals.append(("GET", "/secrets", 503))
        assert await fresh.adopt(b.r.client, Redactor()) == 1
        b.fake.finish(request["job_name"], message=f'{{"n": "{SECRET}"}}', log=SECRET.encode())
        assert await b.status(run) == "COMPLETED"
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert told["output"] == {"n": "***"}
        assert await b.r.client.get_result(told["stdout_uri"]) == b"***"
        await fresh.close()


async def test_a_script_runs_as_a_container() -> None:
    text = "import json, os, sys\nprint(sys.argv[1], json.loads(os.environ['NOETL_INPUT']))\n"
    asked, files = container_request(
        text, {"runtime": "process"}, interpreter=["python3"], arguments=["one"]
    )
    assert (asked.image, files) == ("python:3.12-slim", {"script": text.encode()})
    # Nobody knows the command, so nobody is asked whether it is wanted.
    async with bench(may_run_processes=True, look_s=600) as b:
        ctx = context(input={"n": 1}, client=b.r.client)
        await b.tool.run(asked, ctx, files)
        await until(lambda: b.tool.tally["process", "succeeded"])


# ------------------------------------------------------------------ podman


@pytest.fixture(scope="session")
def podman_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """An image with a shell, made from a program of this machine; skips where podman cannot run."""
    program, box = shutil.which("podman"), shutil.which("busybox")
    if program is None or box is None:
        pytest.skip("podman and a static busybox are needed")
    folder = tmp_path_factory.mktemp("podman")
    settings = folder / "containers.conf"
    runtime = 'runtime = "runc"' if shutil.which("runc") else ""
    settings.write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "none"\n'
        f"[engine]\n{runtime}\n"
    )
    environ = {**ENVIRON, "PATH": f"/usr/sbin:/sbin:{ENVIRON['PATH']}", "HOME": str(folder),
               "CONTAINERS_CONF": str(settings)}  # fmt: skip
    root = folder / "root"
    for name in ("bin", "dev", "tmp", "noetl"):
        (root / name).mkdir(parents=True)
    shutil.copy2(box, root / "bin" / "busybox")
    for name in ("sh", "cat", "echo", "sleep", "id"):
        (root / "bin" / name).symlink_to("busybox")
    image = f"localhost/noetl-test-{folder.parent.name}-{folder.name}:1".lower()

    def podman(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [program, *words], env=environ, capture_output=True, timeout=50, check=False
        )

    tar = folder / "image.tar"
    subprocess.run(["tar", "-C", root, "-cf", tar, "."], check=True)  # noqa: S607 - wherever it is
    podman("import", str(tar), image)
    tried = podman("run", "--rm", "--memory", "64m", image, "/bin/echo", "works")
    try:
        if tried.stdout.strip() != b"works":
            pytest.skip(f"podman runs no container here: {tried.stderr.decode()[-300:]}")
        yield image, environ
    finally:
        podman("rmi", "--force", image)


async def test_podman_runs_a_container_within_its_limits(
    podman_image: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    image, environ = podman_image
    async with bench(tmp_path, environ=environ) as b:
        script = "id -u; cat /noetl/input.json > $NOETL_TERMINATION_LOG; echo $COLOR >&2"
        tool = (f"{{kind: container, image: '{image}', runtime: podman, env: {{COLOR: red}}, "
                f"input: {{n: 1}}, command: [/bin/sh, -c], args: ['{script}'], "
                "resources: {limits: {memory: 64Mi, cpu: 500m}}}")  # fmt: skip
        run = await b.start(tool)
        assert await b.status(run, 50) == "COMPLETED"
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert (told["terminal_state"], told["output"]) == ("succeeded", {"n": 1})
        lines = (await b.r.client.get_result(told["stdout_uri"])).split()
        assert sorted(lines) == [b"65532", b"red"]
        await until(lambda: is_empty(tmp_path))


async def test_a_container_of_podman_is_found_again_by_its_name(
    podman_image: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    image, environ = podman_image
    async with bench(tmp_path, environ=environ) as b:
        run = await b.start(
            f"{{kind: container, image: '{image}', runtime: podman, "
            "command: [/bin/sh, -c, 'sleep 2; exit 5']}"
        )
        await b.parked(run)
        await until(lambda: _names(environ))  # it has started when podman knows it
        await b.tool.close()
        fresh = tool_at(b.fake, home=tmp_path, environ=environ)
        assert await fresh.adopt(b.r.client) == 1
        assert await b.status(run, 50) == "FAILED"
        told = (await b.rows(run, "call.done"))[0]["result"]["context"]
        assert (told["terminal_state"], told["exit_code"]) == ("failed", 5)
        await until(lambda: is_empty(tmp_path))
        await fresh.close()


PODMAN = r"""#!/bin/sh
cd "{folder}"
case "$1" in
  run)
    for word; do
      case "$word" in noetl.idempotency-key=*) echo "${{word#*=}}" > key;; esac
    done;;
  container) test -e key || exit 125
    printf '[{{"Config": {{"Labels": {{"noetl.idempotency-key": "%s"}}}}, ' "$(cat key)"
    printf '"State": {{"ExitCode": 3, "Error": "no {secret}"}}}}]';;
  wait) read -r _ < end;;
  logs) echo "said {secret}";;
esac
"""
"""A podman whose containers end when a line is written to a pipe."""


async def test_a_container_that_is_found_again_has_its_secrets_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "home", tmp_path / "bin"
    folder.mkdir()
    program, end = folder / "podman", folder / "end"
    program.write_text(PODMAN.format(folder=folder, secret=SECRET))
    program.chmod(0o755)
    os.mkfifo(end)
    monkeypatch.setenv("PATH", f"{folder}:{ENVIRON['PATH']}")
    async with bench(home, redactor=Redactor((SECRET,)), look_s=600) as b:
        made = config(runtime="podman", env={"KEY": f"key {SECRET}"})
        await b.tool.run(made, context(client=b.r.client, redactor=Redactor((SECRET,))))
        await until((folder / "key").is_file)
        await b.tool.close()
        fresh, told = tool_at(b.fake, home=home, environ=ENVIRON), Told()
        assert await fresh.adopt(told, Redactor()) == 1
        await asyncio.to_thread(end.write_text, "over\n")
        await until(lambda: is_empty(home))
        assert [(body.state, body.reason) for body in told.bodies] == [("failed", "no ***")]
        assert told.logs == [b"said ***\n"]
        await fresh.close()


async def test_an_image_that_podman_cannot_have_is_told_as_such(
    podman_image: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    _, environ = podman_image
    async with bench(tmp_path, environ=environ) as b:
        run = await b.start(
            "{kind: container, image: 'localhost/no-such-image:9', runtime: podman, "
            "image_pull_policy: Never}"
        )
        assert await b.status(run, 50) == "FAILED"
        (failed,) = await b.rows(run, "playbook.failed")
        assert (failed["error"]["kind"], failed["error"]["code"]) == ("config", "image_pull")


def _names(environ: dict[str, str]) -> bytes:
    words = [
        "podman",
        "ps",
        "--filter",
        "label=noetl.tool-kind=container",
        "--format",
        "{{.Names}}",
    ]
    return subprocess.run(words, env=environ, capture_output=True, timeout=30, check=False).stdout
