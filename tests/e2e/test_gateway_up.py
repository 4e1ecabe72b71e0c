"""The gateway of the embedded stack, as a person meets it: one address, one session, one door."""

import json
import os
import signal
import subprocess
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.e2e.test_up import BIN, environ, healthy, record

PASSWORD = "a long enough secret"  # noqa: S105 - of a stack that lives as long as its test
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: door, path: demo/door}
workload: {name: nobody}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'hello': name}", args: {name: "{{ workload.name }}"}}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A stack that several tests look at; what `noetl up` told, and a command line."""
    folder = tmp_path_factory.mktemp("gateway")
    home = folder / "home"
    password = folder / "password"
    password.write_text(f"{PASSWORD} of the admin\n", encoding="utf-8")
    told = {"NOETL_HOME": str(home), "NOETL_ADMIN_PASSWORD_FILE": str(password)}

    def noetl(*words, stdin=""):
        return subprocess.run(
            [BIN / "noetl", *words], cwd=folder, env=environ(folder) | told,
            input=stdin, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    try:
        started = noetl("up", "--detach", "--port", "auto", "--pools", "shared=2", "-o", "json")
        assert started.returncode == 0, started.stderr
        noetl.told = json.loads(started.stdout)
        noetl.folder, noetl.home = folder, home
        yield noetl
    finally:
        noetl("down", "--wipe", "--yes")


def visit(url, **headers):
    """One question of a browser: status, where it is sent, and the cookie that it is given."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, answer.headers, body
    finally:
        connection.close()


def gateway_of(stack):
    return stack.told["gateway_url"]


def test_the_printed_address_signs_in_once(stack):
    url = stack.told["login_url"]
    assert url.startswith(f"{gateway_of(stack)}/login?ticket=")
    ticket = url.rpartition("=")[2]

    status, headers, _ = visit(url)
    assert (status, headers["location"]) == (302, "/")
    assert "HttpOnly" in headers["set-cookie"]
    cookie = headers["set-cookie"].partition(";")[0]
    status, _, body = visit(f"{gateway_of(stack)}/api/auth/whoami", Cookie=cookie)
    assert (status, json.loads(body)["account"], json.loads(body)["roles"]) == (
        200, "admin", ["admin"],
    )  # fmt: skip
    assert visit(gateway_of(stack) + "/", Cookie=cookie)[0] in {200, 503}  # pages may be unbuilt

    status, headers, body = visit(url)
    assert (status, json.loads(body)["code"]) == (401, "ticket_used")
    assert "set-cookie" not in headers
    written = [file.read_text() for file in stack.home.glob("logs/*.log")]
    written.append((stack.home / "run" / "stack.json").read_text())
    assert [text for text in written if ticket in text] == []


def test_whoever_has_no_session_is_sent_to_sign_in(stack):
    status, headers, _ = visit(gateway_of(stack) + "/")

    assert (status, headers["location"]) == (302, "/login")
    assert visit(gateway_of(stack) + "/login")[0] in {200, 503}
    assert visit(gateway_of(stack) + "/noetl/executions")[0] == 401


def test_a_password_signs_in_and_runs_a_playbook_through_the_gateway(stack):
    made = stack("users", "create", "ada", "--role", "developer", "--password", stdin=PASSWORD)
    assert made.returncode == 0, made.stderr
    (stack.folder / "door.yaml").write_text(PLAYBOOK)

    refused = stack("login", "ada", "--password", stdin="not the right one")
    assert refused.returncode == 4, refused.stderr
    signed = stack("login", "ada", "--password", "-o", "json", stdin=PASSWORD)
    assert signed.returncode == 0, signed.stderr
    assert json.loads(signed.stdout)["context"] == "embedded"
    try:
        who = json.loads(stack("whoami", "--gateway", "-o", "json").stdout)
        assert (who["account"], who["roles"]) == ("ada", ["developer"])
        assert who["expires_at"] == json.loads(signed.stdout)["expires_at"]

        assert stack("register", "door.yaml", "--gateway").returncode == 0
        words = ("exec", "demo/door", "--gateway", "--set", "name=Ada")
        done = stack(*words, "--wait", "-o", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["result"] == {"hello": "Ada"}
        followed = stack(*words, "--follow")
        assert followed.returncode == 0, followed.stderr
        name = json.loads(done.stdout)["execution_id"]
        seen = stack("executions", "events", name, "-f", "--gateway", "-o", "jsonl")
        assert seen.stdout.count("\n") > 3
        assert stack("users", "list", "--gateway").returncode == 4
    finally:
        assert stack("logout").returncode == 0
    assert json.loads(stack("whoami", "-o", "json").stdout)["account"] == "admin"


def test_the_admin_signs_in_with_the_password_that_the_stack_was_told(stack):
    assert stack("login", "admin", "--password", stdin=PASSWORD).returncode == 4
    signed = stack("login", "admin", "--password", stdin=f"{PASSWORD} of the admin")
    assert signed.returncode == 0, signed.stderr
    try:
        who = json.loads(stack("whoami", "--gateway", "-o", "json").stdout)
        assert (who["account"], who["kind"], who["roles"]) == ("admin", "user", ["admin"])
    finally:
        assert stack("logout").returncode == 0
    kept = [file for file in stack.home.rglob("*") if file.is_file() and not file.is_symlink()]
    assert [file for file in kept if b"of the admin" in file.read_bytes()] == []


def test_a_gateway_that_is_killed_comes_back(stack):
    def noetl(*words):
        return stack(*words)

    before = healthy(noetl, {})
    os.kill(before["gateway"]["pid"], signal.SIGKILL)
    after = healthy(noetl, {"gateway": 1})

    assert after["gateway"]["pid"] != before["gateway"]["pid"]
    assert after["server"]["pid"] == before["server"]["pid"]
    said = stack("logs", "up", "--tail", "50").stdout
    assert "[up] gateway ended with signal SIGKILL. It starts again in 1 s.\n" in said
    assert stack("whoami", "--gateway").returncode == 0
    again = stack("up").stdout.strip()
    assert visit(again)[0] == 302


def test_a_stack_may_have_no_gateway_and_no_pages(tmp_path):
    home = tmp_path / "home"

    def noetl(*words):
        return subprocess.run(
            [BIN / "noetl", *words, "--home", home], cwd=tmp_path, env=environ(tmp_path),
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    words = ("up", "--detach", "--port", "auto", "--pools", "")
    try:
        bare = noetl(*words, "--no-gateway")
        assert bare.returncode == 0, bare.stderr
        assert bare.stdout.endswith("/api/health\n")
        assert sorted(part.name for part in record(home).parts) == ["nats", "postgres", "server"]
        noetl("down")
        plain = noetl(*words, "--no-ui")
        assert plain.returncode == 0, plain.stderr
        gateway = plain.stdout.strip()
        assert urlsplit(gateway).path == ""
        assert (visit(f"{gateway}/health")[2], visit(f"{gateway}/login")[0]) == ("ok", 404)
        last = record(home)
    finally:
        down = noetl("down", "--wipe", "--yes")
    assert down.returncode == 0
    assert [part.name for part in last.parts if part.identity.is_alive] == []
