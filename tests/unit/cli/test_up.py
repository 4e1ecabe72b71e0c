"""The commands of the embedded stack as far as they need none."""

import json
from dataclasses import replace

import pytest

from noetl.cli.contexts import Context, Contexts, read_contexts, write_context
from noetl.cli.failures import CommandFailed
from noetl.cli.stacks import told_by_stack
from noetl.cli.status import age
from noetl.local.embedded.home import Home
from noetl.local.embedded.record import write
from noetl.local.embedded.supervisor import me
from noetl.settings import ServerSettings, WorkerSettings
from tests.unit.local.embedded.test_identity import stack

ANYWHERE = "0.0.0.0"  # noqa: S104 - what is refused


def test_nothing_runs_and_every_command_says_so(noetl, tmp_path):
    home = tmp_path / ".noetl"

    assert noetl("down") == (0, "", f"no stack runs in {home}\n")
    assert json.loads(noetl("down", "-o", "json").out) == {
        "home": str(home),
        "stopped": [],
        "is_wiped": False,
    }
    assert noetl("logs") == (0, "", f"nothing was logged in {home}\n")
    shown = noetl("status")
    assert (shown.code, shown.out) == (10, "")
    assert shown.err.startswith(f"error[stack_not_running]: no stack runs in {home}\n")


def test_data_are_deleted_only_when_somebody_said_so(noetl, tmp_path):
    data = tmp_path / ".noetl" / "data"
    data.mkdir(parents=True)
    for words in (("down", "--wipe"), ("up", "--reset")):
        refused = noetl(*words)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith("error[confirmation_required]: delete all data under ")
    assert data.exists()

    assert noetl("down", "--wipe", "--yes").code == 0
    assert not data.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pools", "shared"), "`--pools` has to be names with a number each"),
        (("--pools", "Shared=1"), "`--pools` has to be pools with 1..256 slots each"),
        (("--server-port", "no"), "the option for NOETL_PORT has to be a whole number"),
        (("--port", "no"), "the option for ROUTER_PORT has to be a whole number"),
        (("--open", "--no-ui"), "there would be no page to open"),
        (("--open", "--no-gateway"), "there would be no page to open"),
        (("--listen", ANYWHERE), "The stack would be open to the network on 0.0.0.0 without TLS"),
        (
            ("--listen", ANYWHERE, "--insecure-bind"),
            "without sign-in\nhint: set NOETL_ADMIN_PASSWORD_FILE or NOETL_OIDC_ISSUER\n",
        ),
        (("--database-url", "mysql://x"), "the option for NOETL_DATABASE_URL has to be an address"),
    ],
)
def test_a_wish_that_cannot_be_granted_is_a_usage_error(noetl, words, message, tmp_path):
    refused = noetl("up", *words)

    assert refused.code == 2
    assert message in refused.err
    assert not (tmp_path / ".noetl").exists()


@pytest.mark.parametrize("password", ["eleven-char", "x" * 257])
def test_a_password_of_the_admin_has_its_limits(noetl, monkeypatch, tmp_path, password):
    file = tmp_path / "password"
    file.write_text(password, encoding="utf-8")
    monkeypatch.setenv("NOETL_ADMIN_PASSWORD_FILE", str(file))
    refused = noetl("up")

    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error[bad_setting]: NOETL_ADMIN_PASSWORD_FILE has to be a password of 12..256 characters\n"
        "hint: run `noetl explain setting.NOETL_ADMIN_PASSWORD`\n"
    )
    assert not (tmp_path / ".noetl").exists()


def test_lines_of_a_stack_that_has_ended_are_shown(noetl, tmp_path):
    logs = tmp_path / ".noetl" / "logs"
    logs.mkdir(parents=True)
    (logs / "server.log").write_text("one\ntwo\n")
    (logs / "nats.log").write_text("three\n")

    assert noetl("logs").out == "[nats] three\n[server] one\n[server] two\n"
    assert noetl("logs", "server", "--tail", "1").out == "[server] two\n"
    assert noetl("logs", "server", "--tail", "1", "-o", "jsonl").out == (
        '{"part":"server","line":"two"}\n'
    )
    refused = noetl("logs", "sever")
    assert (refused.code, refused.err) == (
        5,
        "error[not_found]: there is no log of `sever`\nhint: did you mean `server`?\n",
    )


def test_settings_in_force_are_shown_without_secrets(noetl):
    shown = noetl("server", "--database-url", "postgresql://u:p@db/n", "--print-settings", "--json")
    assert json.loads(shown.out)["database_url"] == "***"

    shown = noetl("worker", "--pool", "gpu", "--slots", "3", "--print-settings")
    told = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert (told["pool"], told["slots"]) == ("gpu", "3")


def test_a_process_with_bad_settings_ends_with_2(noetl):
    assert noetl("worker").err.startswith("error[worker.bad_pool]: ")
    assert noetl("worker").code == 2
    refused = noetl("server", "--port", "70000")
    assert refused.code == 2
    assert "the option for NOETL_PORT has to be a whole number in 1..65535, not" in refused.err
    assert noetl("server").err.startswith("error[bad_setting]: The server needs a database")


def test_one_more_process_of_a_running_stack_is_told_by_it(noetl, tmp_path):
    home = Home(tmp_path / ".noetl")
    home.make()
    home.keep("nats.url", "nats://127.0.0.1:1")
    home.keep("internal.token", "inner")
    home.keep("database.url", "postgresql://127.0.0.1:1/noetl")
    home.keep("encryption.key", "k")
    home.keep("worker-shared.token", "pooled")
    pid, started = me()
    running = replace(
        stack(pid=pid, started=started),
        home=str(home.path),
        token_file=str(home.keep("admin.token", "boss")),
    )
    write(home.record, running)

    found = ServerSettings.read({}, fallback=told_by_stack(home.path))
    assert (found.database_url, found.internal_token, found.url) == (
        "postgresql://127.0.0.1:1/noetl", "inner", "http://127.0.0.1:8082",
    )  # fmt: skip
    tokens = {
        pool: WorkerSettings.read({}, pool=pool, fallback=told_by_stack(home.path, pool)).token
        for pool in ("shared", "system", "gpu")
    }
    assert tokens == {"shared": "pooled", "system": "inner", "gpu": "boss"}
    shown = json.loads(noetl("worker", "--pool", "gpu", "--print-settings", "--json").out)
    assert (shown["server_url"], shown["token"]) == ("http://127.0.0.1:1", "***")
    again = noetl("up")
    assert (again.code, again.out) == (0, "http://127.0.0.1:1/api/health\n")


def test_a_stack_that_runs_opens_its_page_again(noetl, tmp_path, monkeypatch):
    home = Home(tmp_path / ".noetl")
    home.make()
    pid, started = me()
    gateway = "http://127.0.0.1:1"  # nobody is there to give a ticket
    running = replace(stack(pid=pid, started=started), home=str(home.path), gateway_url=gateway)
    write(home.record, running)
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) == 1)

    assert noetl("up", "--open").out == f"{gateway}\n"
    assert noetl("up", "--open").err.endswith("open the address elsewhere\n")
    told = json.loads(noetl("up", "-o", "json").out)
    assert (told["gateway_url"], told["login_url"], opened) == (gateway, "", [gateway] * 2)


def test_the_database_commands_need_a_database(noetl):
    assert noetl("db", "status").code == 10
    assert noetl("db", "migrate", "--database-url", "postgresql://127.0.0.1:1/x").code == 10
    refused = noetl("db", "migrat")
    assert (refused.code, refused.err) == (
        2,
        "error[usage]: there is no command `noetl db migrat`\nhint: did you mean `migrate`?\n",
    )


def test_contexts_are_kept_for_their_owner_alone(tmp_path):
    file = tmp_path / "deep" / "config.toml"

    assert read_contexts(file) == Contexts()
    write_context("embedded", "http://a", "/t", make_current=False, file=file)
    write_context('b"\n', "http://b", "", make_current=False, file=file)
    assert read_contexts(file) == Contexts(
        current="embedded",
        entries={
            "embedded": Context(server_url="http://a", token_file="/t"),  # noqa: S106 - a name
            'b"\n': Context(server_url="http://b"),
        },
    )
    write_context("c", "http://c", "", make_current=True, file=file)
    assert read_contexts(file).current == "c"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("current = [")
    with pytest.raises(CommandFailed, match="cannot be read"):
        read_contexts(file)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3700, "1 h 1 min"), (90000, "1 d 1 h")],
)
def test_an_age_is_told_in_two_units(seconds, text):
    assert age(seconds) == text
