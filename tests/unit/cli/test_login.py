"""Signing in and out, who one is, and commands that go through the gateway."""

import json
import os
import pty
import sys
import threading
import types
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from noetl.cli import providing
from noetl.cli.app import main
from noetl.cli.contexts import Context, contexts_file, read_contexts, write_context
from noetl.cli.failures import FAILURES
from tests.unit.cli.doorway import Doorway
from tests.unit.gateway.rig import PASSWORD

STDIN = f"{PASSWORD}\n".encode()
PLAYBOOK = "\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"


@pytest.fixture(scope="module")
def door():
    with Doorway() as made:
        made.call(lambda rig: rig.account("ada", "developer"))
        made.call(lambda rig: rig.account("eve", "viewer"))
        made.call(lambda rig: rig.account("boss", "admin"))
        yield made


@pytest.fixture(autouse=True)
def _rested(door):
    """Nobody has signed in of late: the limits of the gateway are another test's."""
    for buckets in door.rig.gate.limits._buckets.values():  # noqa: SLF001 - time would do the same
        buckets.clear()


@pytest.fixture
def at(noetl, door):
    """A command line whose current context is this gateway alone."""
    write_context("here", "", "", gateway_url=door.url, make_current=True)
    return noetl


@pytest.fixture
def ada(at):
    assert at("login", "ada@example.com", "--password", stdin=STDIN).code == 0
    return at


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


def kept():
    return read_contexts().entries["here"]


def token():
    return Path(kept().session).read_text(encoding="utf-8").strip()


def test_a_password_begins_a_session_that_is_kept_and_never_shown(at, door):
    code, out, err = at("login", "ada@example.com", "--password", "-vv", stdin=STDIN)

    assert (code, out) == (0, "")
    assert f"signed in at {door.url} as ada@example.com until " in err
    assert token().startswith("nts_")
    assert token() not in err
    assert PASSWORD not in err
    assert token() not in contexts_file().read_text()
    assert Path(kept().session).stat().st_mode & 0o777 == 0o600
    for words in (("context", "show", "-o", "json"), ("context", "list"), ("whoami", "-vv")):
        shown = at(*words)
        assert token() not in shown.out + shown.err


@pytest.mark.usefixtures("ada")
def test_who_one_is_has_a_tenant_roles_and_an_end(noetl):
    found = one(noetl("whoami", "-o", "json"))

    assert (found["account"], found["roles"], found["tenant_id"]) == (
        "ada", ["developer"], "default",
    )  # fmt: skip
    assert found["session_id"]
    assert found["expires_at"] > "2"
    shown = noetl("whoami").out
    assert shown.startswith("account: ada\n")
    assert "expires_at: " in shown


def test_the_session_is_told_as_json_without_its_text(at, door):
    found = one(at("login", "eve", "--password", "-o", "json", stdin=STDIN))

    assert found.pop("expires_at") > "2"
    assert found.pop("user_id").isdigit()
    assert found == {
        "email": "eve@example.com", "display_name": None, "roles": ["viewer"],
        "gateway_url": door.url, "context": "here",
    }  # fmt: skip
    assert at("login", "eve", "--password", "-o", "name", stdin=STDIN).out.startswith("user/")


@pytest.mark.usefixtures("ada")
def test_another_session_takes_the_place_of_the_one_before(noetl, tmp_path):
    before = kept().session
    noetl("login", "eve", "--password", stdin=STDIN)

    assert one(noetl("whoami", "--json"))["account"] == "eve"
    assert not (tmp_path / before).exists()


@pytest.mark.usefixtures("ada")
def test_signing_out_ends_the_session_everywhere(noetl, tmp_path, door):
    text = token()
    file = kept().session
    assert noetl("logout") == (0, "", f"signed out at {door.url}\n")

    assert kept() == Context(gateway_url=door.url)
    assert not (tmp_path / file).exists()
    (tmp_path / "old").write_text(text)
    refused = noetl("whoami", "--token-file", "old")
    assert refused.code == 4
    assert "noetl login" in refused.err
    assert noetl("logout").err == f"nobody is signed in at {door.url}\n"
    assert one(noetl("logout", "-o", "json"))["is_ended"] is False


@pytest.mark.usefixtures("ada")
def test_a_session_that_has_ended_is_still_signed_out_of(noetl, door):
    text = token()
    door.call(lambda rig: rig.system.end_session(text))

    assert noetl("logout").code == 0
    assert kept().session == ""


def test_who_tries_too_often_ends_with_11(at):
    words = ("login", "mallory", "--password")
    codes = [at(*words, stdin=b"not the right one\n").code for _ in range(5)]
    refused = at("login", "mallory", "--password", stdin=STDIN)

    assert (set(codes), refused.code) == ({4}, 11)
    assert refused.err.startswith("error[rate_limited]: ")


def test_a_wrong_password_ends_with_4_and_changes_nothing(at):
    refused = at("login", "nobody", "--password", stdin=b"not the right one\n")

    assert (refused.code, refused.out) == (4, "")
    assert refused.err.startswith("error[bad_credentials]: ")
    assert kept().session == ""
    assert at("whoami").code == 4


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (("--password",), STDIN, "whose password it is has to be said"),
        (("ada", "--password"), b"", "there is no password"),
        (("--password", "--device"), b"", "`--device` and `--password` exclude each other"),
        (("--browser", "--provider", "corb"), b"", "there is no provider `corb`"),
        (("--hours", "25"), b"", "--hours"),
    ],
)
def test_what_cannot_be_understood_is_a_usage_error(at, words, stdin, message):
    refused = at("login", *words, stdin=stdin)

    assert refused.code == 2
    assert message in refused.err


def test_without_a_terminal_a_password_is_taken(at):
    assert at("login", "ada@example.com", stdin=STDIN).code == 0
    assert at("login", "ada@example.com", "--local", stdin=STDIN).code == 0


def test_account_and_password_are_asked_for_at_a_terminal(at, monkeypatch):
    monkeypatch.setattr("typer._click.termui.visible_prompt_func", lambda _: "eve")
    monkeypatch.setattr("typer._click.termui.hidden_prompt_func", lambda _: PASSWORD)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(("login", "--password")) == 0
    os.close(ours)

    assert one(at("whoami", "--json"))["account"] == "eve"


def test_a_gateway_that_has_no_name_gets_one_and_is_current(noetl, door):
    words = ("login", "eve", "--password", "--server-url", door.url)
    done = noetl(*words, stdin=STDIN)

    name = door.url.removeprefix("http://").replace(":", "-")
    assert done.err.endswith(f"the context `{name}` is the current one now\n")
    assert read_contexts().entries[name].gateway_url == door.url
    assert one(noetl("whoami", "--json"))["account"] == "eve"
    assert noetl(*words, "-c", "mine", stdin=STDIN).code == 0
    assert read_contexts().current == "mine"
    noetl(*words, stdin=STDIN)
    assert set(read_contexts().entries) == {name, "mine"}


def test_a_session_wins_over_the_token_of_its_context_until_it_ends(noetl, door, tmp_path):
    (tmp_path / "token").write_text("ntk_none")
    write_context("here", "http://127.0.0.1:1", str(tmp_path / "token"), gateway_url=door.url,
                  make_current=True)  # fmt: skip
    assert noetl("whoami", "--gateway").code == 4
    noetl("login", "eve", "--password", stdin=STDIN)
    assert one(noetl("whoami", "--gateway", "--json"))["account"] == "eve"
    noetl("logout")
    assert noetl("whoami", "--gateway").code == 4


def test_a_context_without_a_gateway_has_nowhere_to_sign_in(noetl):
    write_context("old", "http://127.0.0.1:1", "", make_current=True)
    refused = noetl("login", "eve", "--password", stdin=STDIN)

    assert refused.code == 2
    assert "no gateway is known of http://127.0.0.1:1" in refused.err


def test_a_variable_that_wins_is_named(at, monkeypatch):
    monkeypatch.setenv("NOETL_TOKEN", "ntk_other")

    assert "NOETL_TOKEN" in at("login", "eve", "--password", stdin=STDIN).err


# ------------------------------------------------------------------------- the keyring


@pytest.fixture
def ring(monkeypatch):
    held = {}
    made = types.SimpleNamespace(
        get_keyring=lambda: types.SimpleNamespace(priority=5),
        set_password=lambda service, name, text: held.__setitem__((service, name), text),
        get_password=lambda service, name: held.get((service, name)),
        delete_password=lambda service, name: held.pop((service, name)),
    )
    monkeypatch.setitem(sys.modules, "keyring", made)
    return held


def test_a_keyring_keeps_the_session_where_there_is_one(at, ring):
    at("login", "eve", "--password", stdin=STDIN)

    assert kept().session.startswith("keyring:here.")
    assert [text[:4] for text in ring.values()] == ["nts_"]
    assert one(at("whoami", "--json"))["account"] == "eve"
    assert at("logout").code == 0
    assert ring == {}


def test_a_keyring_that_is_locked_is_told(at, ring):
    at("login", "eve", "--password", stdin=STDIN)
    ring.clear()

    refused = at("whoami")
    assert refused.code == 1
    assert "the keyring of this machine does not give the session out" in refused.err
    assert at("logout").code == 0


def test_a_keyring_that_takes_nothing_leaves_it_to_the_file(at, ring, monkeypatch):
    def refuse(*_):
        raise RuntimeError("locked")

    monkeypatch.setattr(sys.modules["keyring"], "set_password", refuse)
    at("login", "eve", "--password", stdin=STDIN)

    assert ring == {}
    assert token().startswith("nts_")


# ------------------------------------------------------------------ at a provider


def browse(url):
    """A browser that goes where it is sent, in the background."""

    def go():
        with urlopen(url, timeout=20):  # noqa: S310 - of this machine
            pass

    threading.Thread(target=go, daemon=True).start()
    return True


def test_the_browser_signs_in_at_the_provider(at, monkeypatch):
    monkeypatch.setattr("webbrowser.open", browse)
    done = at("login", "--browser")

    assert done.code == 0, done.err
    assert "sign in at http://127.0.0.1:" in done.err
    found = one(at("whoami", "--json"))
    assert (found["email"], found["roles"]) == ("ada@example.org", ["developer"])


def test_a_browser_that_brings_another_state_is_not_believed(at, monkeypatch):
    seen = []

    def lead_astray(url):
        back = parse_qs(urlsplit(url).query)["redirect_uri"][0]

        def go():
            for target in (f"{back}?code=x&state=wrong", f"{back}x?code=x"):
                try:
                    urlopen(target, timeout=20)  # noqa: S310 - of this machine
                except OSError as fault:
                    seen.append(fault.code)
            state = parse_qs(urlsplit(url).query)["state"][0]
            with urlopen(f"{back}?error=access_denied&state={state}", timeout=20):  # noqa: S310 - as above
                pass

        threading.Thread(target=go, daemon=True).start()
        return False

    monkeypatch.setattr("webbrowser.open", lead_astray)
    refused = at("login", "--browser")

    assert refused.code == FAILURES["sign_in_failed"].exit_code == 4
    assert "the provider refused: access_denied" in refused.err
    assert "there is no browser here" in refused.err
    assert seen == [404, 404]
    assert kept().session == ""


def test_nobody_who_comes_back_is_waited_for_only_so_long(at, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    monkeypatch.setattr(providing, "PATIENCE_S", 0.1)

    refused = at("login", "--provider", "corp")
    assert refused.code == 4
    assert "nobody signed in within 0.1 s" in refused.err


def test_a_provider_without_a_device_flow_is_told(at):
    refused = at("login", "--device")

    assert refused.code == 2
    assert "the provider `corp` offers no sign-in with a code" in refused.err


def test_a_code_is_entered_elsewhere(at, door):
    door.issuer.allow_devices()
    try:
        done = at("login", "--device")
    finally:
        door.issuer.overrides.clear()

    assert done.code == 0, done.err
    assert "/activate and enter the code WDJB-MJHT\n" in done.err
    assert one(at("whoami", "--json"))["email"] == "ada@example.org"


def test_a_code_that_is_refused_elsewhere_ends_with_4(at, door):
    door.issuer.allow_devices("access_denied")
    try:
        refused = at("login", "--device")
    finally:
        door.issuer.overrides.clear()

    assert refused.code == 4
    assert "the provider refused: access_denied" in refused.err


def test_a_gateway_without_providers_is_told(noetl):
    with Doorway(providers=()) as bare:
        refused = noetl("login", "--device", "--server-url", bare.url)

    assert refused.code == 2
    assert "this gateway has no sign-in provider" in refused.err


# ------------------------------------------------------------------ through the gateway


@pytest.fixture
def playbook(ada, tmp_path):
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: it, path: door/it}"
    (tmp_path / "it.yaml").write_text(text + PLAYBOOK)
    assert ada("register", "it.yaml").code == 0
    return ada


def test_every_command_works_through_the_gateway(playbook):
    run = playbook
    done = one(run("exec", "door/it", "--wait", "-o", "json"))
    assert done["status"] == "COMPLETED"
    name = done["execution_id"]

    followed = run("exec", "door/it", "--follow")
    assert followed.code == 0
    assert "COMPLETED" in followed.out + followed.err
    events = run("executions", "events", name, "-f", "-o", "jsonl", "-vv")
    assert [json.loads(line)["event_type"] for line in events.out.splitlines()][-1] == (
        "playbook.completed"
    )
    assert f"GET /noetl/executions/{name}/events" in events.err
    assert one(run("executions", "get", name, "--json"))["status"] == "COMPLETED"
    assert one(run("status", name, "--json"))["status"] == "COMPLETED"
    assert run("catalog", "get", "door/it").out.startswith("apiVersion")
    assert one(run("api", "GET", "/api/executions", "--field", "limit=1", "-o", "json"))["items"]


def test_what_a_role_does_not_allow_ends_with_4_through_the_gateway(playbook):
    playbook("login", "eve", "--password", stdin=STDIN)

    refused = playbook("register", "it.yaml", "-o", "json")
    assert refused.code in {4, 7}
    assert playbook("users", "list").code == 4
    playbook("login", "boss", "--password", stdin=STDIN)
    assert "ada" in playbook("users", "list").out
    made = one(playbook("users", "create", "max", "--password", "--json", stdin=STDIN))
    assert made["has_password"] is True
    assert playbook("executions", "get", "1").code == 5
