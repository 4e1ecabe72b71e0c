"""The installed `noetl` against a server: a real socket, memory instead of a database."""

import json
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.events import LogBatch, LogLine
from noetl.api.identity import AccountChange, NewAccount, NewRole, NewToken
from noetl.api.problems import Refused
from noetl.api.runtime import WorkerEntry
from noetl.api.schedules import ScheduleBody
from noetl.api.subscriptions import PutDeliveries, PutDelivery
from noetl.cli.app import main
from noetl.cli.command import GROUPS, every, load
from noetl.clock import rfc3339
from noetl.server.access.tokens import digest, new_token
from noetl.server.fleet.gateways import over_sockets
from noetl.store.identity import TokenRow
from tests.servers.memory import MemoryServer
from tests.unit.cli.gatehouse import HOOKS, Gatehouse
from tests.unit.cli.runs import NOOP, WAITING, document, finish, register, start

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
EXAMPLES = [
    *(
        line
        for name in GROUPS
        if name not in {"tools", "context", "db"}
        for line in load(name).spec.examples
    ),
    *(line for _, one in every() if one.spec.is_remote for line in one.spec.examples),
]
# A listener goes on until messages have come (tests/integration/test_subscribe.py), and manifests
# are for a cluster (tests/deploy).
EXAMPLES = [
    line for line in EXAMPLES if not line.startswith("noetl subscribe ") and "kubectl" not in line
]
READINGS = """apiVersion: noetl.io/v1
kind: Subscription
metadata: {name: readings, path: subscriptions/readings}
spec:
  source: nats
  mode: pull
  url: nats://127.0.0.1:4222
  stream: READINGS
  consumer: noetl
  dispatch: {playbook: examples/hello}
"""
# A test run in the background ignores SIGINT, and so would its children.
HEEDING = (
    "import os, signal, sys;"
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("remote")
    shutil.copytree(ROOT / "examples", made / "examples")
    return made


@pytest.fixture(scope="module")
def working(folder):
    """A server with a worker, which has run something, and with a gateway before it."""
    with MemoryServer(folder, gateways=over_sockets) as server, Gatehouse() as server.house:
        for name in ("hello", "subplaybook_child", "subplaybook_parent"):
            register(server, "", (folder / f"examples/{name}.yaml").read_text())
        yield server


@pytest.fixture(scope="module")
def idle():
    """A server whose work is done by the test."""
    with MemoryServer() as server:
        yield server


@pytest.fixture
def noetl(folder, tmp_path):
    def run(server, *words, env=None, stdin=b""):
        return subprocess.run(
            [BIN / "noetl", *words], cwd=folder, env=environment(server, tmp_path) | (env or {}),
            capture_output=True, check=False, input=stdin,
        )  # fmt: skip

    return run


def environment(server, home):
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(home),
        "NOETL_SERVER_URL": server.url,
        "TOKEN": "a-token-of-an-example",
    }


@pytest.fixture
def inside(folder, tmp_path, capsys, monkeypatch):
    """The same in this process, which takes milliseconds."""

    def run(server, *words, **variables):
        for name in ("NOETL_OUTPUT", "NOETL_TOKEN", "NOETL_CONTEXT", "NOETL_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (environment(server, tmp_path) | variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        return (main(words), *capsys.readouterr())

    return run


async def furnished(client):
    """What the examples speak of: somebody with a token, a role, a schedule, a worker."""
    hello = "examples/hello"
    wanted = (
        lambda: client.add_user(NewAccount(subject="ada", roles=("developer", "viewer"))),
        lambda: client.add_role(NewRole(name="analyst")),
        lambda: client.add_schedule(ScheduleBody(name="nightly", path=hello, cron="0 3 * * *")),
        lambda: client.register_worker(WorkerEntry(name="gpu-1", runtime={"pool": "gpu"})),
        lambda: client.put_credential(
            CredentialPut(name="crm", type="bearer", data={"token": "of-the-crm"})
        ),
    )
    for make in wanted:
        with suppress(Refused):
            await make()
    await client.register(Register(content=READINGS))
    listens = await client.register_subscription("subscriptions/readings")
    for action in ("deactivate", "activate"):  # whatever an example before has made of it
        await client.steer_subscription(listens.subscription_id, action)
    (ada,) = (await client.users(q="ada")).items
    await client.change_user(ada.account_id, AccountChange(active=True))
    await client.give_roles(ada.account_id, ("developer", "viewer"))
    if not (await client.tokens(account_id=ada.account_id)).items:
        await client.add_token(NewToken(name="before", account_id=ada.account_id))


async def delivered(server, client, execution_id):
    """A listener of webhooks, a gateway that takes what is sent to it, and a delivery before."""
    accepted = {"status": "accepted", "execution_id": execution_id, "delivery_id": "7"}
    server.house.answers[:] = [(202, accepted)]
    await server.house.join(client)
    path = "subscriptions/orders"
    await client.register(Register(content=HOOKS.format(path=path, listener="orders")))
    listens = await client.register_subscription(path)
    row = PutDelivery(
        delivery_id=server.ids.new(), at=rfc3339(server.clock.now()), outcome="accepted",
        status=202, execution_id=execution_id,
    )  # fmt: skip
    await client.put_deliveries(listens.subscription_id, PutDeliveries(items=(row,)))


@pytest.mark.parametrize("example", dict.fromkeys(EXAMPLES))
def test_every_example_of_the_help_works(working, folder, tmp_path, inside, example):
    hello = start(working, "examples/hello", (folder / "examples/hello.yaml").read_text())
    register(working, "", (folder / "examples/branches.yaml").read_text())
    working.call(furnished)
    if "subscriptions/orders" in example:
        working.call(lambda client: delivered(working, client, hello))
    if not set("|>") & set(example):
        code, out, err = inside(working, *shlex.split(example)[1:])
        assert code == 0, out + err
        return
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", example],
        cwd=folder, env=environment(working, tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["hello", "loop_parallel", "subplaybook_parent"])
def test_run_and_exec_show_the_same_document(working, inside, name):
    file = f"examples/{name}.yaml"
    here = json.loads(inside(working, "run", file, "-o", "json")[1])
    there = json.loads(inside(working, "exec", file, "--wait", "-o", "json")[1])
    del here["events_file"]
    for told in (here, there):
        del told["execution_id"], told["duration_ms"]
        for step in told["steps"].values():
            del step["duration_ms"]

    assert there == here


def test_a_large_result_is_shown_whole(working, inside):
    words = ("exec", "examples/large_result.yaml", "--wait", "-o", "json")
    code, whole, _ = inside(working, *words)
    _, cut, _ = inside(working, *words, "--max-output", "0")

    assert code == 0
    assert len(whole) > len(cut)
    assert "noetl://" not in whole


def test_the_children_of_a_run_are_followed(working, inside):
    code, _, err = inside(working, "exec", "examples/subplaybook_parent", "--follow")

    assert code == 0
    assert err.count(" examples/subplaybook_child ") == 4


@pytest.mark.parametrize(("env", "is_drawn"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_shows_the_live_tree(working, folder, tmp_path, env, is_drawn):
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [BIN / "noetl", "exec", "examples/loop_parallel.yaml", "--follow"], cwd=folder,
        env=environment(working, tmp_path) | env, stdin=theirs, stdout=theirs, stderr=theirs,
        check=False,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 0)[0]:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)

    assert done.returncode == 0
    assert (b"\x1b" in shown) is is_drawn
    assert ("✔ sum_up".encode() in shown) is is_drawn
    assert b"COMPLETED" in shown


def test_an_interrupt_stops_the_waiting_and_not_the_run(idle, folder, tmp_path):
    register(idle, "demo/waiting", WAITING)
    words = [sys.executable, "-c", HEEDING, BIN / "noetl", "exec", "demo/waiting", "--follow"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(idle, tmp_path), stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert b"step start started" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    (run,) = idle.call(lambda client: client.executions(path="demo/waiting")).items

    assert (process.returncode, run.status) == (130, "RUNNING")
    assert err.decode() == (
        f"error[interrupted]: stopped waiting; execution {run.execution_id} goes on\n"
        f"hint: follow it with `noetl executions events {run.execution_id} -f`\n"
    )


def test_following_goes_on_over_a_restart_and_shows_each_event_once(idle, folder, tmp_path):
    execution_id = start(idle, "demo/restarted", WAITING)
    words = [BIN / "noetl", "executions", "events", execution_id, "-f", "-o", "jsonl"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(idle, tmp_path), stdout=subprocess.PIPE, bufsize=0
    ) as process:
        rows = [json.loads(process.stdout.readline())]
        idle.stop()
        idle.restart()
        finish(idle, execution_id)
        rest, _ = process.communicate(timeout=20)
    rows += [json.loads(line) for line in rest.splitlines()]
    kept = idle.call(lambda client: client.events(execution_id, limit=1000)).items

    assert process.returncode == 0
    assert [row["seq"] for row in rows] == [row["seq"] for row in kept]
    assert rows[-1]["event_type"] == "playbook.completed"


def test_exec_follows_over_a_restart_to_the_result(idle, folder, tmp_path):
    register(idle, "demo/followed", WAITING)
    words = [BIN / "noetl", "exec", "demo/followed", "--follow"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(idle, tmp_path), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, bufsize=0,
    ) as process:  # fmt: skip
        first = process.stderr.readline()
        (run,) = idle.call(lambda client: client.executions(path="demo/followed")).items
        idle.stop()
        idle.restart()
        finish(idle, run.execution_id, {"answer": 42})
        out, err = process.communicate(timeout=20)

    assert process.returncode == 0
    assert b"answer: 42" in out
    assert [line.split()[1:4] for line in (first + err).splitlines()] == [
        [b"step", b"start", b"started"],
        [b"step", b"start", b"completed"],
    ]


def test_lines_are_followed_over_a_restart(idle, folder, tmp_path):
    execution_id = start(idle, "demo/lines", WAITING)

    def write(n):
        line = LogLine(
            execution_id=execution_id, command_id="7", attempt=1, n=n, step="start",
            ts=rfc3339(idle.clock.now()), text=f"line {n}",
        )  # fmt: skip
        idle.call(lambda client: client.log(LogBatch(entries=(line,))))

    write(1)
    words = [BIN / "noetl", "executions", "logs", execution_id, "-f"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(idle, tmp_path), stdout=subprocess.PIPE, bufsize=0
    ) as process:
        lines = [process.stdout.readline()]
        idle.stop()
        idle.restart()
        write(2)
        finish(idle, execution_id)
        rest, _ = process.communicate(timeout=20)

    assert process.returncode == 0
    assert [line.split(b"|")[1] for line in [*lines, *rest.splitlines()]] == [
        b" line 1\n",
        b" line 2",
    ]


REMOTE = {name: one.spec for name, one in every() if one.spec.is_remote}


# The list of a keychain is of one playbook: tests/unit/cli/test_keychain.py.
LISTS = [name for name in REMOTE if name.endswith(" list") and name != "keychain list"]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_items_and_a_cursor_and_its_names_lead_back(working, folder, inside, name):
    start(working, "examples/hello", (folder / "examples/hello.yaml").read_text())
    working.call(furnished)
    group = name.removesuffix(" list")
    words = (*name.split(), *(("--user", "ada") if group == "token" else ()))
    code, out, err = inside(working, *words, "-o", "json")
    assert (code, err) == (0, "")
    assert list(json.loads(out)) == ["items", "next_cursor"]

    names = inside(working, *words, "-o", "name")[1].split()
    assert len(names) == len(json.loads(out)["items"])
    if f"{group} get" in REMOTE:
        assert names
        for one in names[:3]:
            assert inside(working, group, "get", one, "-o", "name") == (0, f"{one}\n", "")


@pytest.mark.parametrize(
    "line",
    [
        next(line for line in spec.examples if not set("|>") & set(line))
        for name, spec in REMOTE.items()
        # A session of nobody is ended, and a file is looked into, without a server.
        if name not in {"logout", "subscribe", "deploy render"}
        and not all(set("|>") & set(line) for line in spec.examples)
    ],
)
def test_without_a_server_every_command_ends_with_10_and_one_object(inside, idle, line):
    words = shlex.split(line)[1:]
    code, out, err = inside(idle, *words, "--yes", "-o", "json", "-vv",
                            NOETL_SERVER_URL="http://127.0.0.1:1")  # fmt: skip

    assert (code, out) == (10, "")
    assert json.loads(err)["error"]["code"] == "unreachable"


def test_a_stopped_server_is_unreachable(idle, inside):
    idle.stop()
    try:
        code, out, err = inside(idle, "executions", "list", "-o", "json")
    finally:
        idle.restart()

    assert (code, out) == (10, "")
    assert json.loads(err)["error"]["code"] == "unreachable"


@pytest.fixture(scope="module")
def guarded():
    """A server that asks who it is, and a token of each of two roles."""
    tokens = {role: new_token() for role in ("viewer", "admin")}
    with MemoryServer(is_open=False) as server:
        for role, token in tokens.items():
            row = TokenRow(token_id=role, sha256=digest(token), account=role, roles=(role,))
            server.call(lambda _, row=row: server.store.tokens.put(row))
        yield server, tokens


def test_a_server_asks_who_it_is(guarded, inside, tmp_path):
    server, tokens = guarded
    file = tmp_path / "a.yaml"
    file.write_text(document(NOOP, "demo/a"))

    def tried(*words, token=""):
        code, out, err = inside(server, *words, "-vv", "-o", "json", NOETL_TOKEN=token)
        assert not token or token not in out + err
        return code, json.loads(err)["error"]["code"] if code else ""

    assert tried("executions", "list") == (4, "auth_required")
    assert tried("executions", "list", token=tokens["viewer"]) == (0, "")
    assert tried("exec", str(file), token=tokens["viewer"]) == (4, "forbidden")
    assert tried("register", str(file), token=tokens["viewer"]) == (4, "forbidden")
    assert tried("register", str(file), token=tokens["admin"]) == (0, "")
    assert tried("exec", "demo/a", "--wait", token=tokens["admin"]) == (0, "")

    connection = HTTPConnection("127.0.0.1", server.port)
    for _ in range(10):
        header = {"Authorization": f"Bearer {new_token()}"}
        connection.request("GET", "/api/executions", headers=header)
        connection.getresponse().read()
    connection.close()
    assert tried("executions", "list", token=new_token()) == (11, "rate_limited")


def test_a_context_holds_the_token(guarded, inside, noetl):
    server, tokens = guarded
    url = ("--server-url", server.url)
    noetl(server, "context", "add", "here", *url, "--token-stdin", stdin=tokens["viewer"].encode())

    assert inside(server, "executions", "list")[0] == 0
    assert inside(server, "executions", "list", "-c", "here")[0] == 0
    assert inside(server, "executions", "list", "-c", "there")[0] == 5
