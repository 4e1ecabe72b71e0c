"""The way to the server: who is vouched for, and what a call carries."""

from __future__ import annotations

import pytest

from noetl.api.http import Answer, NoAnswer
from noetl.gateway.errors import ShardMapMismatch, UpstreamUnreachable
from noetl.gateway.person import Person
from noetl.gateway.shards import Shards
from noetl.gateway.upstream import VOUCHED_S, Upstream
from noetl.ids import shard_of
from noetl.secrets.signed import HEADER, key_of, verified
from tests.unit.gateway.test_limits import Still

ANN = Person(user_id="7", subject="ann", email="ann@example.com", roles=("viewer",), session_id="9")


class Heard:
    """A server that remembers what it was sent."""

    def __init__(self):
        self.headers = []

    async def request(self, *asked):
        self.headers.append(dict(asked[-1]))
        return Answer(200, {}, b'{"status": "ok"}')


class Away:
    """A server that is not there."""

    async def request(self, method, path, *_):
        raise NoAnswer(f"{method} http://10.0.0.7{path}: refused")


def word(way):
    return way.headers[-1][HEADER.lower()]


async def test_a_call_for_somebody_says_who_in_signed_words():
    clock, way = Still(), Heard()
    upstream = Upstream([way], "inner", clock)
    await upstream.acting_for(ANN).raw("GET", "/x")
    sent = way.headers[-1]
    assert sent["authorization"] == "Bearer inner"
    claims = verified(word(way), [key_of("inner")], clock.now().timestamp())
    told = {name: claims[name] for name in ("iss", "aud", "sub", "email", "roles", "tenant", "sid")}
    assert told == {
        "iss": "noetl-gateway", "aud": "noetl-server", "sub": "7", "email": "ann@example.com",
        "roles": ["viewer"], "tenant": "default", "sid": "9",
    }  # fmt: skip
    assert claims["exp"] - claims["iat"] == 60
    assert claims["jti"]


async def test_a_word_is_used_for_half_a_minute_and_one_is_made_for_each():
    clock, way = Still(), Heard()
    upstream = Upstream([way], "inner", clock)
    await upstream.acting_for(ANN).raw("GET", "/x")
    first = word(way)
    await upstream.acting_for(ANN).raw("GET", "/x")
    assert word(way) == first
    await upstream.acting_for(Person(user_id="8", subject="bob")).raw("GET", "/x")
    assert word(way) != first
    clock.at = VOUCHED_S
    await upstream.acting_for(ANN).raw("GET", "/x")
    assert word(way) != first


async def test_what_a_caller_brings_never_takes_the_place_of_our_word():
    way = Heard()
    upstream = Upstream([way], "inner", Still())
    forged = {HEADER.lower(): "forged", "authorization": "Bearer stolen"}
    await upstream.acting_for(ANN).raw("GET", "/x", b"", forged)
    assert way.headers[-1]["authorization"] == "Bearer inner"
    assert word(way) != "forged"
    await upstream.service().raw("GET", "/x", b"", {"authorization": "Bearer stolen"})
    assert way.headers[-1]["authorization"] == "Bearer inner"


async def test_a_server_that_is_away_is_told_without_its_address():
    upstream = Upstream([Away()], "inner", Still())
    with pytest.raises(UpstreamUnreachable) as caught:
        await upstream.service().raw("GET", "/x")
    assert "10.0.0.7" not in str(caught.value)


def test_a_run_is_asked_at_the_server_of_its_shard():
    ways = [Heard(), Heard(), Heard()]
    shards = Shards(("http://a", "http://b"))
    upstream = Upstream(ways, "inner", Still(), shards)
    assert upstream.base_for(None) is ways[0]
    for run in ("1", "42", "325", "320816801799737344"):
        assert upstream.base_for(run) is ways[1 + shard_of(run, 2)]
    shards.state = "mismatch"
    assert upstream.base_for(None) is ways[0]
    with pytest.raises(ShardMapMismatch):
        upstream.base_for("1")


async def test_another_internal_token_counts_at_once():
    clock, way = Still(), Heard()
    upstream = Upstream([way], "old", clock)
    await upstream.acting_for(ANN).raw("GET", "/x")
    upstream.renew("new")
    await upstream.acting_for(ANN).raw("GET", "/x")
    assert way.headers[-1]["authorization"] == "Bearer new"
    assert verified(word(way), [key_of("new")], clock.now().timestamp())["sub"] == "7"
    assert upstream.is_service("bearer new")
    assert not upstream.is_service("Bearer old")
    assert not upstream.is_service("new")
    assert not upstream.is_service("")


def test_during_a_rotation_the_token_before_is_taken_and_never_sent():
    upstream = Upstream([], "new", Still(), previous="old")
    taken = [upstream.is_service(f"Bearer {token}") for token in ("new", "old", "", "other")]
    assert taken == [True, True, False, False]
    assert upstream.service_headers()["authorization"] == "Bearer new"
    assert not Upstream([], "new", Still()).is_service("Bearer ")


def test_what_somebody_has_shown_is_in_no_text_about_him():
    assert "nts_secret" not in repr(Person(user_id="7", subject="ann", token="nts_secret"))  # noqa: S106 - a value
