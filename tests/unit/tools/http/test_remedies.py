"""Every error of bad input names what to do about it."""

from __future__ import annotations

import ssl

import httpcore
import pytest

from noetl.tools.http.egress import Egress
from noetl.tools.http.failures import status_error, translated
from noetl.tools.mcp.transport import refused
from tests.servers.http_stage import NOW, fixed, stage

JSON = [("Content-Type", "application/json")]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, ("the server answered 401: give the task `auth`, or mend its credential"
              " (`noetl credentials rotate`)")),
        (403, "the server answered 403: the credential of `auth` may not do this"),
        (404, "the server answered 404: mend the address"),
        (422, "the server answered 422: mend the request"),
        (429, "the server answered 429: let the step retry, or ask less often"),
        (500, ("the server answered 500: let the step retry;"
              " look after the service if it lasts")),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_ok(status, message):
    assert status_error(status, {}, None, NOW).message == message
    assert refused(status).message == message.replace("the server", "the MCP server")


def test_a_failure_of_tls():
    fault = httpcore.ConnectError("failed")
    fault.__cause__ = ssl.SSLError("unknown authority")
    error = translated(fault)
    assert (error.kind, error.code) == ("connection", "TLS_ERROR")
    assert error.message.endswith(
        "a credential of type tls in `auth` names the authorities to trust (`ca`)"
    )


@pytest.mark.parametrize(
    ("config", "code", "named"),
    [
        ({}, "invalid_json", "`response_type: text`"),
        ({"max_bytes": 3}, "output_limit", "`max_bytes`"),
    ],
)
async def test_an_answer_that_cannot_be_taken(config, code, named):
    async with stage(lambda _: (200, JSON, b"{no json}")) as at:
        error = (await at.http(response_type="json", **config)).error
    assert (error["code"], named in error["message"]) == (code, True)


async def test_an_address_that_is_refused():
    async with stage(fixed({}), egress=Egress()) as at:
        error = (await at.http()).error
    assert (error["code"], "NOETL_HTTP_ALLOW" in error["message"]) == ("egress_denied", True)
