"""Which pages may read answers, and which may act."""

from __future__ import annotations

import pytest

from noetl.gateway.cors import Cors, plain_origin
from noetl.gateway.errors import OriginRefused
from tests.unit.gateway.desk import call


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("https://a.example", "https://a.example"),
        ("https://A.Example:443/", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:8080", "http://a.example:8080"),
        ("http://[::1]:8090", "http://[::1]:8090"),
        ("null", ""),
        ("", ""),
        ("a.example", ""),
        ("ftp://a.example", ""),
        ("https://a.example/path", ""),
        ("https://user@a.example", ""),
        ("https://a.example:99999", ""),
        ("https://a.example?x", ""),
        ("https://[", ""),
    ],
)
def test_an_origin_has_one_form(text, plain):
    assert plain_origin(text) == plain


@pytest.mark.parametrize(
    "origin",
    ["https://a.example.evil", "https://evila.example", "http://a.example", "null",
     "https://a.example:8443", "https://a.exampl", "https://sub.a.example"],
)  # fmt: skip
def test_an_origin_that_only_looks_like_a_listed_one_is_a_stranger(origin):
    cors = Cors(("https://a.example",), with_credentials=True)
    assert not cors.is_listed(origin)
    assert cors.headers(origin) == [(b"vary", b"Origin")]
    with pytest.raises(OriginRefused):
        cors.must_trust(call(scheme="wss", host="gateway.example", origin=origin))


def test_the_gateways_own_pages_are_trusted_by_where_they_were_asked():
    cors = Cors((), with_credentials=True, own=("https://noetl.example",))
    assert cors.is_trusted("https://noetl.example", "10.0.0.1:8090", "http")
    assert cors.is_trusted("http://127.0.0.1:8090", "127.0.0.1:8090", "http")
    assert not cors.is_trusted("http://127.0.0.1:8091", "127.0.0.1:8090", "http")
    assert not cors.is_trusted("https://127.0.0.1:8090", "127.0.0.1:8090", "http")


def test_an_upgrade_is_asked_where_its_page_is():
    cors = Cors((), with_credentials=True)
    for scheme, page in (("ws", "http"), ("wss", "https")):
        cors.must_trust(call(scheme=scheme, host="a.example", origin=f"{page}://a.example"))
    with pytest.raises(OriginRefused):
        cors.must_trust(call(scheme="ws", host="a.example", origin="https://a.example"))
    cors.must_trust(call(host="a.example"))


def test_a_star_lets_read_and_lets_nobody_act():
    cors = Cors(("*",), with_credentials=False)
    assert dict(cors.headers("https://any.example"))[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in dict(cors.headers("https://any.example"))
    assert not cors.is_trusted("https://any.example", "gateway", "http")


def test_nobody_is_told_of_what_no_page_may_ask():
    assert Cors((), with_credentials=True).headers("https://a.example") == []
    assert Cors((), with_credentials=True).preflight("https://a.example", "x") == []


def test_credentials_are_told_only_when_they_may_be_sent():
    cors = Cors(("https://a.example",), with_credentials=False)
    assert b"access-control-allow-credentials" not in dict(cors.headers("https://a.example"))


def test_what_a_preflight_asks_is_not_said_back_unless_it_is_known():
    cors = Cors(("https://a.example",), with_credentials=True)
    told = dict(cors.preflight("https://a.example", "x-evil, Mcp-Protocol-Version"))
    allowed = told[b"access-control-allow-headers"]
    assert b"Mcp-Protocol-Version" in allowed
    assert b"evil" not in allowed
