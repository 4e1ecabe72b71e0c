"""Which server a task means, and which programs it may start."""

import asyncio

import pytest

from noetl.dsl.tasks import Mcp
from noetl.tools.base import ToolContext, ToolError, read_config
from noetl.tools.mcp.places import Known, way_of


def way(known=None, secrets=None, **config):
    ctx = ToolContext(
        execution_id="1", step="s", command_id="c", idempotency_key="k", secrets=secrets
    )
    model = read_config(Mcp, {"kind": "mcp", **config})
    return asyncio.run(way_of(model, ctx, known or Known()))


async def of_desk(_alias):
    return {"type": "mcp", "data": {"url": "https://of.credential/mcp", "token": "canary-mcp-77a"}}


KNOWN = Known(endpoints={"DESK": "https://of.name/mcp"}, url="https://of.all/mcp")


def test_what_the_task_says_comes_first_then_credential_name_and_default():
    written = {"endpoint": "https://written/mcp", "server": "desk", "auth": "d"}
    assert way(KNOWN, of_desk, **written).url == "https://written/mcp"
    assert way(KNOWN, of_desk, server="desk", auth="d").url == "https://of.credential/mcp"
    assert way(KNOWN, server="desk").url == "https://of.name/mcp"
    assert way(KNOWN, server="other").url == "https://of.all/mcp"


def test_the_token_is_a_header_and_is_not_shown():
    found = way(KNOWN, of_desk, auth="d")
    assert dict(found.headers) == {"authorization": "Bearer canary-mcp-77a"}
    assert "canary-mcp-77a" not in repr(found)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"method": "tools/list"}, "invalid_config"),
        ({"endpoint": "file:///etc/passwd"}, "invalid_config"),
        ({"transport": "stdio"}, "invalid_config"),
        ({"transport": "stdio", "argv": ["sh", "-c", "true"]}, "stdio_denied"),
    ],
)
def test_what_cannot_be_reached_is_told(config, code):
    with pytest.raises(ToolError) as refusal:
        way(**config)
    assert (refusal.value.kind, refusal.value.code) == ("config", code)


def test_a_program_that_is_listed_may_be_started():
    for allow in (("desk-server",), ("*",)):
        known = Known(stdio_allow=allow)
        found = way(known, transport="stdio", argv=["desk-server", "-v"])
        assert found.argv == ("desk-server", "-v")
