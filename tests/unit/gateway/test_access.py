"""Who calls: which credential decides, which page may use a cookie, and where a call comes from."""

from __future__ import annotations

import pytest

from noetl.gateway.access import Access
from noetl.gateway.cookies import SESSION, Jar
from noetl.gateway.cors import Cors
from noetl.gateway.errors import (
    CsrfRejected,
    InvalidSession,
    MissingToken,
    QueryTokenDisabled,
    TicketUsed,
)
from noetl.gateway.peers import Peers
from noetl.gateway.tickets import Tickets
from tests.unit.gateway.desk import Desk, call

TOKEN = "nts_" + "a" * 51
WRONG = "nts_" + "b" * 51
COOKIE = f"__Host-noetl_session={TOKEN}"


class Stage(Desk):
    def __init__(self, public_url="https://gate.example.org", **more):
        super().__init__()
        self.people.add(TOKEN)
        self.tickets = Tickets(keys=self.keys, sessions=self.sessions, clock=self.clock)
        self.access = Access(
            sessions=self.sessions, tickets=self.tickets, upstream=self.people,
            metrics=self.metrics, public_url=public_url,
            cors=Cors(
                ["https://app.example.org"], with_credentials=True, own=["https://gate.example.org"]
            ),
            **more,
        )  # fmt: skip

    async def via(self, request, purpose=""):
        return (await self.access.person(request, purpose=purpose)).via


@pytest.fixture
def stage():
    return Stage()


@pytest.mark.parametrize(
    ("headers", "via"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, "bearer"),
        ({"authorization": f"bEaReR   {TOKEN}"}, "bearer"),
        ({"x_session_token": TOKEN}, "header"),
        ({"cookie": COOKIE}, "cookie"),
        ({"cookie": f"session_token={TOKEN}"}, "cookie"),
        ({"authorization": f"Bearer {TOKEN}", "x_session_token": WRONG}, "bearer"),
        ({"x_session_token": TOKEN, "cookie": f"__Host-noetl_session={WRONG}"}, "header"),
        ({"authorization": "Basic eDp5", "x_session_token": TOKEN}, "header"),
    ],
    ids=str,
)
async def test_the_first_credential_that_is_there_decides(stage, headers, via):
    assert await stage.via(call(**headers)) == via


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {WRONG}", "x_session_token": TOKEN},
        {"x_session_token": WRONG, "cookie": COOKIE},
        {"cookie": f"__Host-noetl_session={WRONG}; session_token={TOKEN}"},
    ],
    ids=str,
)
async def test_a_wrong_one_is_not_mended_by_a_right_one_behind_it(stage, headers):
    with pytest.raises(InvalidSession):
        await stage.access.person(call(**headers))


async def test_without_any_credential_the_token_is_missing(stage):
    for request in (call(), call(authorization="Basic eDp5"), call(authorization="Bearer ")):
        with pytest.raises(MissingToken):
            await stage.access.person(request, purpose="events")
    assert stage.metrics.authz.value("missing_token") == 3


async def test_the_plain_cookie_counts_on_this_machine_alone():
    plain = f"noetl_session={TOKEN}"
    stage = Stage(public_url="")
    assert await stage.via(call(cookie=plain, host="localhost:8090")) == "cookie"
    assert await stage.via(call(cookie=plain, host="127.0.0.1:8090")) == "cookie"
    with pytest.raises(MissingToken):
        await stage.access.person(call(cookie=plain))
    with pytest.raises(MissingToken):
        await stage.access.person(call(cookie=plain, host="localhost", scheme="https"))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://evil.example",
        "https://gate.example.org.evil.example",
        "https://evilgate.example.org",
        "http://gate.example.org:81",
        "https://app.example.org.evil.example",
        "https://app.example.org@evil.example",
        "",
    ],
)
async def test_a_cookie_authenticated_call_without_origin_or_with_a_foreign_one_is_refused(
    stage, method, origin
):
    more = {} if origin is None else {"origin": origin}
    with pytest.raises(CsrfRejected):
        await stage.access.person(call(method, cookie=COOKIE, **more))


@pytest.mark.parametrize("origin", ["https://gate.example.org", "https://app.example.org"])
async def test_a_page_of_ours_or_of_the_list_may_use_the_cookie(stage, origin):
    assert await stage.via(call("POST", cookie=COOKIE, origin=origin)) == "cookie"


async def test_a_header_needs_no_origin_and_reading_neither(stage):
    evil = {"origin": "https://evil.example"}
    assert await stage.via(call("POST", x_session_token=TOKEN, **evil)) == "header"
    assert await stage.via(call("GET", cookie=COOKIE, **evil)) == "cookie"


async def test_tickets_are_looked_at_for_a_purpose_alone(stage):
    person = await stage.sessions.of(TOKEN)
    ticket = await stage.tickets.issue(person, "events")
    with pytest.raises(MissingToken):
        await stage.access.person(call(query=f"ticket={ticket}"))
    assert await stage.via(call(query=f"ticket={ticket}"), "events") == "ticket"
    with pytest.raises(TicketUsed):
        await stage.access.person(call(query=f"ticket={ticket}"), purpose="events")


@pytest.mark.parametrize("purpose", ["events", "ws"])
async def test_a_session_in_the_query_is_refused_unless_the_switch_is_on(purpose):
    request = call(query=f"session_token={TOKEN}")
    with pytest.raises(QueryTokenDisabled) as refused:
        await Stage().access.person(request, purpose=purpose)
    assert TOKEN not in str(refused.value)
    assert await Stage(takes_query=True).via(request, purpose) == "query"


@pytest.mark.parametrize("purpose", ["", "graphql"])
async def test_the_switch_opens_streams_alone(purpose):
    with pytest.raises(MissingToken):
        await Stage(takes_query=True).access.person(
            call(query=f"session_token={TOKEN}"), purpose=purpose
        )


async def test_without_sign_in_everybody_is_the_developer_but_no_foreign_page_is():
    stage = Stage(is_bypassed=True)
    person = await stage.access.person(call("POST"))
    assert (person.email, person.roles, person.via) == (
        "dev@localhost", ("developer",), "bypass",
    )  # fmt: skip
    with pytest.raises(CsrfRejected):
        await stage.access.person(call("POST", origin="https://evil.example"))


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_without_sign_in_a_name_that_was_led_here_opens_nothing(method):
    stage, evil = Stage(is_bypassed=True, public_url=""), "evil.example:8090"
    for headers in ({"host": evil}, {"host": evil, "origin": f"http://{evil}"}, {"host": "["}):
        with pytest.raises(CsrfRejected):
            await stage.access.person(call(method, **headers))
    for host in ("localhost:8090", "127.0.0.1:8090", "[::1]:8090"):
        assert (await stage.access.person(call(method, host=host))).via == "bypass"


def test_a_host_that_is_none_is_no_fault_of_ours():
    assert Jar.of(call(host="["), "").is_secure


def test_a_cookie_is_for_this_host_alone_and_for_no_script():
    secure = Jar.of(call(), "").kept(SESSION, TOKEN, 60)
    plain = Jar.of(call(host="localhost:8090"), "").kept(SESSION, TOKEN, 60)
    assert secure == (
        f"__Host-noetl_session={TOKEN}; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure"
    )
    assert plain == f"noetl_session={TOKEN}; Path=/; Max-Age=60; HttpOnly; SameSite=Lax"
    assert Jar.of(call(host="localhost"), "https://gate.example.org").is_secure


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "address"),
    [
        ([], "192.0.2.9", "198.51.100.1", "192.0.2.9"),
        (["192.0.2.0/24"], "192.0.2.9", "198.51.100.1", "198.51.100.1"),
        (["192.0.2.0/24"], "203.0.113.5", "198.51.100.1", "203.0.113.5"),
        (["192.0.2.0/24"], "192.0.2.9", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
        (["192.0.2.0/24"], "192.0.2.9", "1.1.1.1, 192.0.2.8", "1.1.1.1"),
        (["192.0.2.0/24"], "192.0.2.9", "no address", "192.0.2.9"),
        (["192.0.2.0/24"], "192.0.2.9", "", "192.0.2.9"),
        (["2001:db8::/32"], "2001:db8::1", "2001:db9::7", "2001:db9::7"),
    ],
)
def test_only_trusted_proxies_say_where_a_call_comes_from(trusted, peer, forwarded, address):
    assert Peers(trusted).address(call(peer=peer, x_forwarded_for=forwarded)) == address


async def test_a_forged_identity_is_no_credential(stage):
    forged = {"x_noetl_identity": "e30.e30.x", "x_user_id": "42", "x_session_id": "7001"}
    with pytest.raises(MissingToken):
        await stage.access.person(call(**forged))
