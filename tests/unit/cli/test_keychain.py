"""`noetl keychain`: what is kept of a playbook's keychain is listed, shown and forgotten."""

import json

import pytest

from noetl.api.catalog import Register
from noetl.api.credentials import KeychainPut
from tests.servers.memory import MemoryServer

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: x, path: shop/x}
keychain: [{name: partner, kind: static, scope: global, map: {token: t}}]
workflow: [{step: start, tool: {kind: noop}}]
"""
SECRET = "kept-of-a-keychain-71c"  # noqa: S105 - a canary of these tests


@pytest.fixture
def served():
    """A server that keeps one entry for all runs."""
    with MemoryServer() as server:
        made = server.call(lambda client: client.register(Register(content=PLAYBOOK)))
        value = KeychainPut(data={"token": SECRET}, scope_type="global", expires_in=600)
        server.call(lambda client: client.put_keychain(made.catalog_id, "partner", value))
        yield server


def test_an_entry_is_listed_and_shown_without_its_value(remote):
    listed = remote("keychain", "list", "shop/x", "-o", "json")
    shown = remote("keychain", "get", "shop/x", "partner", "-o", "json")
    names = remote("keychain", "list", "shop/x", "-o", "name")

    (item,) = json.loads(listed.out)["items"]
    assert (item["name"], item["scope_type"]) == ("partner", "global")
    assert json.loads(shown.out)["status"] == "found"
    assert "partner" in names.out
    assert SECRET not in listed.out + shown.out + names.out + listed.err + shown.err


def test_its_value_is_shown_to_who_insists(remote):
    shown = remote("keychain", "get", "shop/x", "partner", "--reveal", "-o", "json")

    assert json.loads(shown.out)["data"] == {"token": SECRET}


def test_what_was_forgotten_is_not_there_any_more(remote):
    assert remote("keychain", "delete", "shop/x", "partner", "--yes").code == 0

    assert json.loads(remote("keychain", "list", "shop/x", "-o", "json").out)["items"] == []


def test_a_playbook_that_nobody_knows_is_named(remote):
    done = remote("keychain", "list", "shop/nowhere", "-o", "json")

    assert (done.code, done.out) == (5, "")
    assert "shop/nowhere" in done.err
