"""Every list of the command line has one form, and a busy server one ending."""

from __future__ import annotations

import json

import pytest

from noetl.cli.command import COMMANDS, load
from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import TenantRow, TokenRow
from tests.servers.memory import MemoryServer

LISTS = [name for name in COMMANDS if "list" in getattr(load(name), "commands", ())]
PLAYBOOK = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x, path: a/x}\n"
OF = {"keychain": ("a/x",)}  # what a list is of
STEP = "workflow: [{step: start, tool: {kind: noop}}]\n"


@pytest.fixture
def admin(noetl, monkeypatch):
    """A command line of an admin, and a server that asks who it is."""
    with MemoryServer(is_open=False) as server:
        text = new_token()
        row = TokenRow(token_id=str(2**53 + 1), sha256=digest(text), account="root",
                       roles=("admin",))  # fmt: skip
        server.call(lambda _: server.store.tokens.put(row))
        monkeypatch.setenv("NOETL_SERVER_URL", server.url)
        monkeypatch.setenv("NOETL_TOKEN", text)
        noetl.server = server
        yield noetl


def test_there_are_lists():
    assert {"executions", "catalog", "pools", "schedules", "users", "roles", "token"} <= {*LISTS}


@pytest.mark.parametrize("group", LISTS)
def test_a_list_is_one_document_with_items_and_a_cursor(admin, group, tmp_path):
    (tmp_path / "x.yaml").write_text(PLAYBOOK + STEP)
    assert admin("register", "x.yaml", "-q").code == 0
    code, out, err = admin(group, "list", *OF.get(group, ()), "-o", "json")

    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert list(shown) == ["items", "next_cursor"]
    ids = [value for item in shown["items"] for name, value in item.items() if name.endswith("_id")]
    assert all(isinstance(value, str | None) for value in ids)


def test_a_server_at_its_rate_limit_ends_with_11(admin, tmp_path, monkeypatch):
    server, text = admin.server, new_token()
    slow = TenantRow(tenant_id="slow", limits={"execute_rate": 0.3, "execute_burst": 1})
    row = TokenRow(token_id=str(7), sha256=digest(text), account="a", roles=("admin",),
                   tenant_id="slow")  # fmt: skip
    server.call(lambda _: server.store.tenants.add(slow))
    server.call(lambda _: server.store.tokens.put(row))
    monkeypatch.setenv("NOETL_TOKEN", text)
    (tmp_path / "x.yaml").write_text(PLAYBOOK + STEP)
    assert admin("register", "x.yaml").code == 0
    (tmp_path / "many.jsonl").write_text('{"path": "a/x"}\n' * 1000)
    assert admin("exec", "a/x", "-q").code == 0
    assert admin("exec", "--batch", "many.jsonl", "-q").code == 0
    code, out, err = admin("exec", "a/x", "-o", "json")
    assert (code, out, json.loads(err)["error"]["code"]) == (11, "", "rate_limited")
