"""The address that signs in: made by the gateway of the stack, or not at all."""

import json
import socket
from dataclasses import replace

import pytest

from noetl.local.embedded.ports import PortInUse
from noetl.local.embedded.sign_in import login_url
from noetl.local.embedded.up import _addresses
from noetl.local.embedded.wish import Wish
from noetl.settings import StackSettings
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.served import served
from tests.unit.local.embedded.test_identity import stack


async def test_the_address_has_a_ticket_that_counts_once(tmp_path):
    async with gateway_rig() as rig, served(rig.gateway.asgi) as url:
        boss = await rig.login("boss", "admin")
        (tmp_path / "token").write_text(f"{boss.token}\n")
        running = replace(stack(), gateway_url=url, token_file=str(tmp_path / "token"))

        made = await login_url(running)
        assert made.startswith(f"{url}/login?ticket=")
        first = await rig.caller().get(made.removeprefix(url))
        again = await rig.caller().get(made.removeprefix(url))
        assert (first.status, first.headers["location"]) == (302, "/")
        assert (again.status, json.loads(again.body)["code"]) == (401, "ticket_used")

        public = replace(running, public_url="https://noetl.example.org/")
        assert (await login_url(public)).startswith("https://noetl.example.org/login?ticket=")


@pytest.mark.parametrize(
    "more",
    [{"gateway_url": ""}, {"has_pages": False}, {"token_file": "/nowhere"}, {}],
    ids=["no-gateway", "no-pages", "no-token", "nobody-there"],
)
async def test_without_one_it_is_empty(tmp_path, more):
    (tmp_path / "token").write_text("t")
    known = {"gateway_url": "http://127.0.0.1:1", "token_file": str(tmp_path / "token")}

    assert await login_url(replace(stack(), **(known | more))) == ""


def wish(**settings):
    return Wish(settings=StackSettings(**settings))


def test_server_and_gateway_have_a_port_each(tmp_path):
    at = _addresses(wish(home=tmp_path, port=0, gateway_port=0))

    assert at.port != at.gateway_port
    assert at.gateway == f"http://127.0.0.1:{at.gateway_port}"
    none = _addresses(Wish(settings=StackSettings(port=0), has_gateway=False))
    assert (none.gateway_port, none.gateway) == (0, "")


def test_a_port_that_is_taken_names_the_option_for_another():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse) as raised:
            _addresses(wish(port=0, gateway_port=port))
    assert "`--port auto`" in raised.value.hint
    with pytest.raises(PortInUse, match="was asked for twice"):
        _addresses(wish(port=port, gateway_port=port))
