import json
import os
import pty
import sys

import pytest
from msgspec import structs

from noetl.cli.app import main
from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import TokenRow
from tests.servers.memory import MemoryServer
from tests.unit.cli.runs import NOOP, document


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture
def served():
    """A server of its own: nobody is known to it."""
    with MemoryServer() as server:
        yield server


@pytest.fixture
def ada(remote):
    words = ("users", "create", "ada", "--email", "ada@example.org", "--role", "developer")
    return one(remote(*words, "--display-name", "Ada L", "-o", "json"))


def test_an_account_is_made_listed_and_shown(remote, ada):
    assert (ada["subject"], ada["roles"], ada["kind"]) == ("ada", ["developer"], "user")
    remote("users", "create", "deploy", "--kind", "service", "--role", "viewer")

    found = one(remote("users", "list", "-o", "json"))
    assert [item["subject"] for item in found["items"]] == ["ada", "deploy"]
    assert found["next_cursor"] is None
    assert remote("users", "list", "--kind", "service").out.splitlines()[1].split()[1:4] == [
        "deploy", "service", "active",
    ]  # fmt: skip
    name = remote("users", "list", "--role", "developer", "-o", "name").out.strip()
    assert name == f"user/{ada['account_id']}"
    assert one(remote("users", "get", name, "--json")) == ada
    assert one(remote("users", "get", "ada", "--json")) == ada
    assert remote("users", "get", "ad") == (
        5,
        "",
        "error[not_found]: there is no account `ad`\nhint: did you mean `ada`?\n",
    )
    assert remote("users", "get", "77").code == 5
    assert remote("users", "list", "--kind", "robot").code == 2


def test_a_long_list_goes_on(remote, ada):
    remote("users", "create", "bob")
    code, out, err = remote("users", "list", "--limit", "1", "-o", "name")

    assert (code, out) == (0, f"user/{ada['account_id']}\n")
    assert err.startswith("there are more")
    assert len(remote("users", "list", "--all", "-o", "name").out.split()) == 2


@pytest.mark.usefixtures("ada")
def test_an_account_is_changed(remote):
    def changed(*words):
        return one(remote("users", "update", "ada", *words, "--json"))

    assert changed("--email", "a@example.org", "--display-name", "")["display_name"] is None
    assert changed("--deactivate")["active"] is False
    assert remote("users", "list", "--inactive", "-o", "name").out.count("\n") == 1
    assert changed("--activate")["active"] is True
    assert remote("users", "update", "ada").code == 2
    assert remote("users", "update", "ada", "--activate", "--deactivate").code == 2
    assert one(remote("users", "roles", "ada", "viewer", "operator", "--json"))["roles"] == [
        "viewer", "operator",
    ]  # fmt: skip
    assert one(remote("users", "roles", "ada", "--none", "--json"))["roles"] == []
    assert remote("users", "roles", "ada").code == 2
    assert remote("users", "roles", "ada", "nobody").code == 7


def test_an_account_is_deleted_on_request(remote, ada):
    assert remote("users", "delete", "ada").code == 2
    assert remote("users", "delete", "ada", "--yes") == (0, "", "ada is deleted\n")
    assert remote("users", "get", ada["account_id"]).code == 5
    assert remote("users", "delete", "ada", "--yes").code == 5


def test_the_last_admin_stays(remote):
    remote("users", "create", "root", "--role", "admin")
    code, _, err = remote("users", "delete", "root", "--yes")

    assert code == 6
    assert err.startswith("error[in_use]: ")


def test_a_password_is_a_line_of_stdin(remote):
    words = ("users", "create", "eve", "--password", "-o", "json")
    made = one(remote(*words, stdin=b"a long enough secret\nmore\n"))

    assert made["has_password"] is True
    assert one(remote("users", "update", "eve", "--no-password", "--json"))["has_password"] is False
    assert remote("users", "create", "mallory", "--password").code == 2
    code, out, err = remote("users", "create", "m", "--password", "-vv", stdin=b"secret-word")
    assert code in {0, 7}
    assert "secret-word" not in out + err


def test_a_password_is_typed_twice_at_a_terminal(served, monkeypatch, capsys):
    monkeypatch.setenv("NOETL_SERVER_URL", served.url)
    typed = iter(["a long enough secret", "another long secret"] + ["a long enough secret"] * 2)
    monkeypatch.setattr("typer._click.termui.hidden_prompt_func", lambda _: next(typed))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(("users", "create", "eve", "--password", "-o", "json"))
    os.close(ours)

    assert code == 0
    assert json.loads(capsys.readouterr().out)["has_password"] is True


def test_roles_are_listed_and_put(remote):
    found = one(remote("roles", "list", "-o", "json"))
    assert found["next_cursor"] is None
    assert {"admin", "viewer"} <= {item["name"] for item in found["items"]}

    words = ("roles", "put", "finance", "--permission", "audit:read")
    grants = ("--grant", "allow:execute,view:finance/*", "--grant", "deny:execution:run:hr/*")
    made = one(remote(*words, *grants, "-o", "json"))
    assert made["permissions"] == ["audit:read"]
    assert made["grants"] == [
        {"effect": "allow", "actions": ["execute", "view"], "path": "finance/*"},
        {"effect": "deny", "actions": ["execution:run"], "path": "hr/*"},
    ]
    assert one(remote("roles", "get", "role/finance", "--json")) == made
    row = next(r for r in remote("roles", "list").out.splitlines() if r.startswith("finance"))
    assert "allow:execute,view:finance/*; deny:execution:run:hr/*" in row
    assert one(remote("roles", "put", "finance", "--json"))["grants"] == []


def test_a_role_comes_from_a_file(remote, tmp_path):
    text = b"permissions: [audit:read]\ngrants: [{effect: allow, actions: [view], path: a/*}]\n"
    made = one(remote("roles", "put", "reader", "-f", "-", "--json", stdin=text))

    assert made["grants"][0]["path"] == "a/*"
    (tmp_path / "role.yaml").write_text("grnts: []\n")
    assert remote("roles", "put", "reader", "-f", "role.yaml").code == 2
    assert remote("roles", "put", "reader", "-f", "role.yaml", "--permission", "x").code == 2


def test_what_a_role_cannot_be(remote):
    assert remote("roles", "put", "x", "--grant", "may:view:a/*").code == 2
    assert remote("roles", "put", "x", "--grant", "allow:view").code == 2
    assert remote("roles", "put", "x", "--grant", "allow:fly:a/*").code == 7
    assert remote("roles", "put", "admin", "--permission", "audit:read").code == 6
    assert remote("roles", "get", "develoepr").err.endswith("hint: did you mean `developer`?\n")


def test_a_role_is_deleted_on_request(remote):
    remote("roles", "put", "spare")

    assert remote("roles", "delete", "spare").code == 2
    assert remote("roles", "delete", "spare", "--yes", "-o", "name").out == "role/spare\n"
    assert remote("roles", "delete", "spare", "--yes").code == 5
    remote("roles", "put", "held")
    remote("users", "create", "ada", "--role", "held")
    assert remote("roles", "delete", "held", "--yes").code == 6


def test_the_text_of_a_token_is_shown_once(remote, ada):
    words = ("token", "create", "ci", "--user", "ada")
    code, out, err = remote(*words, "--expires", "30", "-o", "json")
    made = json.loads(out)

    assert (code, err) == (0, "keep its text now: it is not shown again\n")
    assert made["account_id"] == ada["account_id"]
    listed = remote("token", "list", "--user", "ada", "-o", "json")
    assert made["token"] not in listed.out
    assert "token" not in one(listed)["items"][0]
    assert one(listed)["next_cursor"] is None
    shown = remote(*words, "--scope", "developer").out
    assert "token: " in shown
    # A name alone would lose the text for ever.
    assert remote(*words, "-o", "name").code == 2


def test_a_token_is_rotated_and_revoked(remote, ada):
    made = one(remote("token", "create", "ci", "--user", ada["account_id"], "-o", "json"))
    name = remote("token", "list", "--user", "ada", "-o", "name").out.strip()

    assert name == f"token/{made['token_id']}"
    assert remote("token", "rotate", name).code == 2
    rotated = one(remote("token", "rotate", name, "--yes", "-o", "json"))
    assert rotated["token_id"] == made["token_id"]
    assert rotated["token"] != made["token"]
    assert remote("token", "revoke", name).code == 2
    assert one(remote("token", "revoke", name, "-y", "--json")) == {
        "token_id": made["token_id"],
        "status": "revoked",
    }
    assert one(remote("token", "list", "--user", "ada", "--json"))["items"] == []
    ended = remote("token", "list", "--user", "ada", "--revoked")
    assert ended.out.splitlines()[1].split()[-1] == "revoked"
    assert remote("token", "revoke", name, "--yes").code == 5
    assert remote("token", "create", "x", "--user", "nobody").code == 5
    assert remote("token", "create", "x", "--user", "ada", "--scope", "admin").code == 7


def test_tenants_are_made_and_listed(remote):
    words = ("tenants", "create", "acme", "--name", "Acme", "--admin", "alice")
    quota = ("--quota", "running_executions=7", "--quota", "schedules=3")
    made = one(remote(*words, *quota, "--email", "alice@example.org", "-o", "json"))

    assert made["limits"] == {"running_executions": 7, "schedules": 3}
    assert made["admin"]["roles"] == ["admin"]
    found = one(remote("tenants", "list", "-o", "json"))
    assert "acme" in [item["tenant_id"] for item in found["items"]]
    assert "tenant/acme" in remote("tenants", "list", "-o", "name").out.split()
    assert "running_executions 7, schedules 3" in remote("tenants", "list").out
    assert remote(*words).code == 6
    assert remote("tenants", "create", "b", "--quota", "schedule=3").code == 2
    assert remote("tenants", "create", "b", "--quota", "schedules=many").code == 2
    assert remote("tenants", "create", "b", "--email", "b@example.org").code == 2


def test_who_one_is(remote):
    found = one(remote("whoami", "-o", "json"))

    assert found["account"] == "local"
    assert "catalog:write" in found["permissions"]
    assert remote("whoami", "-o", "name").out == "user/local\n"
    assert remote("whoami").out.startswith("account: local\n")


@pytest.fixture
def guarded(noetl, monkeypatch):
    """A command line of an admin of a server that asks who it is."""
    with MemoryServer(is_open=False) as server:
        text = new_token()
        row = TokenRow(token_id=text[-4:], sha256=digest(text), account="root", roles=("admin",))
        server.call(lambda _: server.store.tokens.put(row))
        monkeypatch.setenv("NOETL_SERVER_URL", server.url)
        monkeypatch.setenv("NOETL_TOKEN", text)
        noetl.server, noetl.token = server, text
        yield noetl


def test_what_was_done_is_listed(guarded):
    guarded("users", "create", "ada")
    guarded("roles", "put", "admin")
    found = one(guarded("audit", "list", "--action", "user.*", "-o", "json"))

    assert found["next_cursor"] is None
    assert [(i["actor"], i["action"], i["resource"]) for i in found["items"]] == [
        ("root", "user.created", "ada")
    ]
    refused = guarded("audit", "list", "--outcome", "in_use", "--since", "1h").out.splitlines()
    assert refused[1].split()[-1] == "admin"
    assert guarded("audit", "list", "--until", "1h", "-o", "name").out == ""
    assert guarded("audit", "list", "--limit", "1", "-o", "name").err.startswith("there are more")


def test_the_audit_is_whole_or_not(guarded):
    guarded("users", "create", "ada")
    found = one(guarded("audit", "verify", "-o", "json"))
    assert (found["valid"], found["broken"]) == (True, None)

    async def tamper(_):
        rows = guarded.server.store.audit._rows  # noqa: SLF001 - as one who gets at the table itself
        rows[0] = structs.replace(rows[0], actor="somebody else")

    guarded.server.call(tamper)
    code, out, err = guarded("audit", "verify", "-o", "json")
    error = json.loads(err)["error"]
    assert (code, out, error["code"]) == (1, "", "check_failed")
    assert "was altered" in error["message"]
    assert error["details"]["broken"]["reason"] == "altered"


def test_a_token_speaks_for_its_account(guarded, monkeypatch):
    guarded("users", "create", "ada", "--role", "developer", "--role", "viewer")
    of_ada = one(guarded("token", "create", "laptop", "--user", "ada", "--json"))

    monkeypatch.setenv("NOETL_TOKEN", of_ada["token"])
    assert one(guarded("whoami", "--json"))["account"] == "ada"
    narrow = one(guarded("token", "create", "narrow", "--scope", "viewer", "--json"))
    assert narrow["roles"] == ["viewer"]
    names = guarded("token", "list", "-o", "name").out.split()
    assert sorted(names) == sorted(f"token/{made['token_id']}" for made in (of_ada, narrow))
    for words in (("users", "list"), ("roles", "list"), ("tenants", "list"), ("audit", "list")):
        code, out, err = guarded(*words, "-o", "json")
        assert (code, out) == (4, "")
        assert json.loads(err)["error"]["code"] == "forbidden"
    rotated = one(guarded("token", "rotate", of_ada["token_id"], "-y", "--json"))
    monkeypatch.setenv("NOETL_TOKEN", rotated["token"])
    assert guarded("token", "revoke", narrow["token_id"], "--yes").code == 0

    monkeypatch.setenv("NOETL_TOKEN", guarded.token)
    kept = guarded("audit", "list", "--all", "-o", "json").out
    told = {item["action"] for item in json.loads(kept)["items"]}
    assert {"auth.token.created", "auth.token.rotated", "auth.token.revoked"} <= told
    for secret in (guarded.token, of_ada["token"], narrow["token"], rotated["token"]):
        assert secret not in kept


def test_nobody_is_told_who_he_is_not(guarded, monkeypatch):
    monkeypatch.delenv("NOETL_TOKEN")
    code, out, err = guarded("whoami", "-o", "json")

    assert (code, out) == (4, "")
    assert json.loads(err)["error"]["code"] == "auth_required"


def test_an_apply_without_the_right_ends_with_4(guarded, monkeypatch, tmp_path):
    guarded("users", "create", "eve", "--role", "viewer")
    of_eve = one(guarded("token", "create", "laptop", "--user", "eve", "--json"))
    monkeypatch.setenv("NOETL_TOKEN", of_eve["token"])
    (tmp_path / "a.yaml").write_text(document(NOOP, "etl/a"))

    assert guarded("apply", "-f", "a.yaml", "--dry-run=server").code == 0
    code, out, err = guarded("apply", "-f", "a.yaml", "-o", "json")
    assert (code, out) == (4, "")
    assert json.loads(err)["error"]["code"] == "forbidden"
