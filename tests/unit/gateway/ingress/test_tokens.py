"""Tokens of issuers on deliveries: which count, and the reason for each that does not."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from joserfc.jwk import RSAKey

from noetl.dsl.subscription.verify import JwtVerify
from noetl.gateway.ingress.raw import Raw
from noetl.gateway.ingress.verify.pubsub_oidc import GOOGLE
from noetl.gateway.ingress.verify.verdict import Rejected, Verified, wanted
from noetl.gateway.oidc.bearer import keys_in, unavailable
from noetl.gateway.oidc.keyrings import Keyrings, Published
from tests.fakes.issuer import Issuer
from tests.unit.gateway.desk import Clock as Hand
from tests.unit.gateway.desk import through
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.senders import (
    AUDIENCE,
    ISSUER,
    NOW,
    SECRET,
    hs256_token,
    jwt,
    pubsub,
)

BOTH = pytest.mark.parametrize("make", [pubsub, jwt], ids=["pubsub_oidc", "jwt"])


def with_token(one, token, word="Bearer "):
    return by.with_header(one.raw, "authorization", (word + token).encode())


def token_of(one):
    return one.raw.one("authorization").decode().removeprefix("Bearer ")


def told(head, body, signature=b"x" * 64):
    parts = [json.dumps(one).encode() if isinstance(one, dict) else one for one in (head, body)]
    return ".".join(_b64url(part) for part in (*parts, signature))


def _b64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# ---------------------------------------------------------------------------- claims


@pytest.mark.parametrize(
    ("claims", "reason", "status"),
    [
        ({"aud": "https://other"}, "oidc_wrong_audience", 403),
        ({"aud": None}, "oidc_wrong_audience", 403),
        ({"aud": []}, "oidc_wrong_audience", 403),
        ({"aud": {AUDIENCE: 1}}, "oidc_wrong_audience", 403),
        ({"aud": AUDIENCE + "/"}, "oidc_wrong_audience", 403),
        ({"iss": "https://evil.example.org"}, "oidc_bad_issuer", 401),
        ({"iss": None}, "oidc_bad_issuer", 401),
        ({"iss": [ISSUER]}, "oidc_bad_issuer", 401),
        ({"iss": {}}, "oidc_bad_issuer", 401),
        ({"exp": NOW - 61}, "oidc_expired", 401),
        ({"exp": None}, "oidc_invalid", 401),
        ({"exp": "tomorrow"}, "oidc_invalid", 401),
        ({"exp": True}, "oidc_invalid", 401),
        ({"exp": float("inf")}, "oidc_invalid", 401),
        ({"exp": float("nan")}, "oidc_invalid", 401),
        ({"nbf": NOW + 61}, "oidc_invalid", 401),
        ({"nbf": "x"}, "oidc_invalid", 401),
        ({"iat": NOW + 61}, "oidc_invalid", 401),
        ({"iat": None}, "oidc_invalid", 401),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
@BOTH
def test_a_token_for_somebody_else_or_another_time_is_refused(make, claims, reason, status):
    found = make(**claims).verdict()
    assert found == Rejected(reason)
    assert found.status == status


@BOTH
@pytest.mark.parametrize("claims", [{"exp": NOW - 59}, {"nbf": NOW + 60}, {"iat": NOW + 60}])
def test_a_minute_between_two_clocks_is_forgiven(make, claims):
    assert isinstance(make(**claims).verdict(), Verified)


@pytest.mark.parametrize("iss", ["accounts.google.com", "https://accounts.google.com"])
def test_google_signs_under_two_names(iss):
    assert isinstance(pubsub(iss=iss).verdict(), Verified)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"email": "other@project.iam.gserviceaccount.com"}, "oidc_wrong_sa"),
        ({"email": None}, "oidc_wrong_sa"),
        ({"email": [by.ACCOUNT]}, "oidc_wrong_sa"),
        ({"email_verified": False}, "oidc_unverified_email"),
        ({"email_verified": "true"}, "oidc_unverified_email"),
        ({"email_verified": None}, "oidc_unverified_email"),
    ],
)
def test_a_push_of_another_account_is_refused(claims, reason):
    found = pubsub(**claims).verdict()
    assert found == Rejected(reason)
    assert found.status == 403


@pytest.mark.parametrize(
    ("wanted_", "given", "is_good"),
    [
        ({"env": "prod"}, {"env": "prod"}, True),
        ({"env": "prod"}, {"env": "test"}, False),
        ({"env": "prod"}, {"env": ["prod"]}, False),
        ({"env": "prod"}, {"env": None}, False),
        ({"env": True}, {"env": 1}, False),
        ({"env": 1}, {"env": True}, False),
        ({"env": None}, {"env": None}, False),
        ({"env": {"a": 1, "b": 2}}, {"env": {"b": 2, "a": 1}}, True),
        ({"env": "prod", "more": "x"}, {"env": "prod"}, False),
    ],
)
def test_claims_must_be_equal(wanted_, given, is_good):
    found = jwt(config={"claims": wanted_}, **given).verdict()
    assert isinstance(found, Verified) if is_good else found == Rejected("oidc_claim_mismatch")


# ---------------------------------------------------------------------------- signature


@BOTH
@pytest.mark.parametrize(
    "alg", ["none", "None", "nOnE", "HS256", "HS512", "RS512", "PS256", "", None]
)
def test_a_token_that_is_signed_in_another_way_is_refused(make, alg):
    one = make()
    head, body, signature = token_of(one).split(".")
    header = {**json.loads(base64.urlsafe_b64decode(head + "==")), "alg": alg}
    for proof in (signature, ""):
        changed = f"{_b64url(json.dumps(header).encode())}.{body}.{proof}"
        found = one.verdict(with_token(one, changed))
        assert found in {Rejected("oidc_invalid"), Rejected("oidc_malformed")}
        assert found.status == 401


@pytest.mark.parametrize("secret_of", ["pem", "jwk", "n"])
def test_the_public_key_of_an_issuer_is_no_secret(secret_of):
    """RS256 to HS256: a token under the public key as if it were a shared one."""
    of = by.issuer("RS256")
    public = of.key.as_dict(private=False)
    pem = of.key.as_pem(private=False)
    secret = {"pem": pem, "jwk": json.dumps(public).encode(), "n": public["n"].encode()}[secret_of]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "env": "prod", "iat": NOW, "exp": NOW + 60}
    forged = hs256_token(claims, secret, kid=of.key.kid)
    one = jwt(alg="RS256")
    assert one.verdict(with_token(one, forged)) == Rejected("oidc_invalid")
    # A listener that takes both, and whose credential is a public key.
    config = JwtVerify(
        type="jwt", issuer=ISSUER, audience=AUDIENCE, algorithms=("rs256", "hs256"), key_=("k",)
    )
    secrets = {"k": {"value": pem.decode()}}
    real = one.verdict(config=config, secrets=secrets)
    assert isinstance(real, Verified)
    found = one.verdict(with_token(one, forged), config=config, secrets=secrets)
    assert found == Rejected("oidc_bad_signature")


def test_a_shared_key_is_taken_only_where_a_credential_holds_it():
    one = by.hs256()
    assert isinstance(one.verdict(), Verified)
    config = JwtVerify(type="jwt", issuer=ISSUER, audience=AUDIENCE, algorithms=("hs256",))
    assert one.verdict(config=config) == Rejected("misconfigured")
    default = JwtVerify(type="jwt", issuer=ISSUER, audience=AUDIENCE, key_=("new",))
    assert one.verdict(config=default) == Rejected("oidc_invalid")


@pytest.mark.parametrize("text", ["short", "x" * 31, "-----BEGIN PUBLIC KEY-----\nAAAA", "{", "{}"])
def test_a_credential_that_is_no_key_serves_nobody(text):
    assert keys_in(text) == []
    one = by.hs256()
    assert one.verdict(secrets={"new": {"value": text}}) == Rejected("misconfigured")


@pytest.mark.parametrize("form", ["pem", "jwk", "jwks"])
@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_a_credential_may_hold_the_key_of_the_issuer(alg, form):
    one, key = jwt(alg=alg), by.issuer(alg).key
    public = key.as_dict(private=False)
    text = {
        "pem": key.as_pem(private=False).decode(), "jwk": json.dumps(public),
        "jwks": json.dumps({"keys": [public]}),
    }[form]  # fmt: skip
    config = JwtVerify(type="jwt", issuer=ISSUER, audience=AUDIENCE, key_=("gone", "k"))
    assert isinstance(one.verdict(config=config, secrets={"k": {"value": text}}), Verified)
    other = RSAKey.generate_key(2048, {"kid": key.kid}).as_dict(private=False)
    found = one.verdict(config=config, secrets={"k": {"value": json.dumps(other)}})
    assert found == Rejected("oidc_bad_signature")


@pytest.mark.parametrize(
    "told_", [{"kty": "oct"}, {"kty": "oct", "k": "c2hvcnQ"}, {"kty": "oct", "k": 1}]
)
def test_a_shared_key_may_be_a_jwk_that_is_long_enough(told_):
    one = by.hs256()
    good = {"kty": "oct", "k": _b64url(SECRET.encode())}
    assert isinstance(one.verdict(secrets={"new": {"value": json.dumps(good)}}), Verified)
    found = one.verdict(secrets={"new": {"value": json.dumps(told_)}})
    assert found == Rejected("misconfigured")


def test_a_listener_of_no_account_takes_no_push():
    one = pubsub()
    config = replace(one.config, service_account="")
    assert one.verdict(config=config) == Rejected("misconfigured")


def test_a_key_of_another_name_is_unknown():
    one = jwt()
    public = {**by.issuer("ES256").key.as_dict(private=False), "kid": "another"}
    config = JwtVerify(type="jwt", issuer=ISSUER, audience=AUDIENCE, key_=("k",))
    found = one.verdict(config=config, secrets={"k": {"value": json.dumps(public)}})
    assert found == Rejected("oidc_unknown_kid")


@BOTH
def test_a_token_under_another_key_of_that_name_is_refused(make):
    alg = "RS256" if make is pubsub else "ES256"
    other = Issuer(ISSUER, alg, by.Clock())
    one = make(of=other)
    assert one.verdict(keys=by.keys(by.issuer(alg))) == Rejected("oidc_bad_signature")


@BOTH
def test_an_unknown_key_is_told_and_keys_that_nobody_has_are_nobodys_fault(make):
    one = make()
    assert one.verdict(keys=lambda _: None) == Rejected("oidc_unknown_kid")
    found = one.verdict(keys=unavailable)
    assert found == Rejected("jwks_unavailable")
    assert (found.status, found.is_forged) == (503, False)


@BOTH
@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"b64": False}])
def test_a_token_that_asks_for_something_unknown_is_refused(make, header):
    one = make()
    head, body, signature = token_of(one).split(".")
    more = {**json.loads(base64.urlsafe_b64decode(head + "==")), **header}
    changed = f"{_b64url(json.dumps(more).encode())}.{body}.{signature}"
    found = one.verdict(with_token(one, changed))
    assert found in {Rejected("oidc_invalid"), Rejected("oidc_malformed")}


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "x", "a.b", "a.b.c", "..", "a.b.c.d", "é.é.é", "x" * 20_000,
        told({"alg": "RS256"}, b"[]"), told({"alg": "RS256"}, b"no json"), told(b"[]", {}),
        told({"alg": "RS256", "kid": "k"}, b"[" * 5000),
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_is_no_token_is_malformed(make, text):
    one = make()
    raw = by.with_header(one.raw, "authorization", b"Bearer " + text.encode())
    assert one.verdict(raw) == Rejected("oidc_malformed")
    assert wanted(one.config, raw) is None


@BOTH
def test_a_token_in_another_spelling_is_refused(make):
    one = make()
    head, body, signature = token_of(one).split(".")
    for text in (f"{head}.{body}.{signature}=", f"{head}.{body}.{signature}==",
                 f"{head} .{body}.{signature}", f"{head}.{body}.!{signature}"):  # fmt: skip
        assert one.verdict(with_token(one, text)) == Rejected("oidc_malformed")


@BOTH
def test_another_way_to_tell_who_one_is_is_no_token(make):
    one = make()
    assert one.verdict(with_token(one, token_of(one), "Basic ")) == Rejected("bad_token")
    assert one.verdict(with_token(one, token_of(one), "")) == Rejected("bad_token")
    assert isinstance(one.verdict(with_token(one, token_of(one), "bEARER ")), Verified)


def test_a_token_may_come_in_a_header_of_its_own():
    one = jwt(config={"header": "x-token"})
    raw = by.with_header(by.raw_of(), "x-token", token_of(one).encode())
    assert isinstance(one.verdict(raw), Verified)
    assert one.verdict() == Rejected("missing_token")


# ---------------------------------------------------------------------------- keys of issuers


class Stage:
    """An issuer that is asked, and a listener that believes it."""

    def __init__(self, alg="ES256", **config):
        self.clock = Hand()
        self.issuer = Issuer(ISSUER, alg, self.clock)
        self.noted = []
        self.rings = Keyrings(through(self.issuer.app), self.clock, self.noted.append)
        told_ = {"issuer": ISSUER, "audience": AUDIENCE, **config}
        self.config = JwtVerify(type="oidc", **told_)

    async def verdict(self, **header):
        now = self.clock.now().timestamp()
        claims = {"iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": int(now) + 60}
        raw = by.raw_of(authorization="Bearer " + self.issuer.signed(claims, **header))
        asked = wanted(self.config, raw)
        found = await self.rings.keys(asked.place, asked.kid)
        sender = by.Sender("oidc", self.config, raw, keys=found)
        return sender.verdict(now=now)


@pytest.mark.parametrize("config", [{}, {"jwks_url": f"{ISSUER}/jwks"}], ids=["discovery", "url"])
async def test_the_keys_of_an_issuer_are_asked_for_once(config):
    stage = Stage(**config)
    for _ in range(3):
        assert isinstance(await stage.verdict(), Verified)
    assert stage.issuer.seen["jwks"] == 1
    assert stage.issuer.seen.get("discovery", 0) == (0 if config else 1)
    assert stage.noted == ["refreshed"]


async def test_a_new_key_counts_after_one_refresh():
    stage = Stage()
    assert isinstance(await stage.verdict(), Verified)
    stage.issuer.rotate()
    assert isinstance(await stage.verdict(), Verified)
    assert stage.issuer.seen["jwks"] == 2


async def test_a_thousand_unknown_keys_cost_one_question_a_minute():
    stage = Stage()
    assert isinstance(await stage.verdict(), Verified)
    for number in range(1000):
        assert await stage.verdict(kid=f"k{number}") == Rejected("oidc_unknown_kid")
    assert stage.issuer.seen["jwks"] == 2
    stage.clock.passed += 61
    assert await stage.verdict(kid="k") == Rejected("oidc_unknown_kid")
    assert await stage.verdict(kid="k2") == Rejected("oidc_unknown_kid")
    assert stage.issuer.seen["jwks"] == 3
    assert isinstance(await stage.verdict(), Verified)


async def test_known_keys_serve_a_day_while_the_issuer_is_away():
    stage = Stage()
    assert isinstance(await stage.verdict(), Verified)
    stage.issuer.is_down = True
    stage.clock.passed += 23 * 3600
    assert isinstance(await stage.verdict(), Verified)
    stage.clock.passed += 2 * 3600
    assert await stage.verdict() == Rejected("jwks_unavailable")


async def test_an_issuer_that_never_answered_is_asked_at_a_pace():
    stage = Stage()
    stage.issuer.is_down = True
    for _ in range(50):
        assert await stage.verdict() == Rejected("jwks_unavailable")
    assert stage.issuer.seen["discovery"] == 1
    assert stage.noted == ["failed"]
    stage.issuer.is_down = False
    stage.clock.passed += 6
    assert isinstance(await stage.verdict(), Verified)


@pytest.mark.parametrize(
    "overrides",
    [{"issuer": "https://evil.example.org"}, {"jwks_uri": "http://id.example.org/jwks"}],
)
async def test_an_issuer_that_points_elsewhere_is_not_followed(overrides):
    stage = Stage()
    stage.issuer.overrides = overrides
    assert await stage.verdict() == Rejected("jwks_unavailable")
    assert "jwks" not in stage.issuer.seen


async def test_issuers_are_remembered_in_bounds():
    stage = Stage()
    for number in range(300):
        await stage.rings.keys(Published(issuer=f"https://i{number}.example.org"), "k")
    assert len(stage.rings._rings) == 256  # noqa: SLF001 - the bound is the point


def test_only_a_token_that_may_count_asks_for_a_key():
    found = wanted(pubsub().config, pubsub().raw)
    assert (found.place, found.kid) == (GOOGLE, by.issuer("RS256").key.kid)
    assert wanted(pubsub().config, by.raw_of()) is None
    assert wanted(pubsub().config, by.doubled(pubsub().raw, "authorization")) is None
    assert wanted(by.hs256().config, by.hs256().raw) is None
    assert wanted(by.bearer().config, by.bearer().raw) is None
    assert wanted(None, Raw(method="POST", path="/")) is None
    forged = by.with_header(
        jwt().raw, "authorization", b"Bearer " + hs256_token({}, b"x" * 32, kid="k").encode()
    )
    assert wanted(jwt().config, forged) is None
