"""Signing in through an issuer: which tokens count, how keys are renewed, and the way back."""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from noetl.api.http import AsgiTransport
from noetl.bus.memory_keys import MemoryKeys
from noetl.gateway.oidc import Provider, Providers, SignIns
from noetl.gateway.oidc.errors import (
    BadClaims,
    BadSignature,
    BadState,
    CodeRefused,
    IssuerNotAllowed,
    IssuerUnreachable,
    UnknownProvider,
)
from noetl.gateway.oidc.flow import challenge_of, safe_return
from noetl.settings import BadSetting
from tests.fakes.issuer import CLIENT, SECRET, Issuer
from tests.unit.gateway.desk import Clock, through

URL = "https://id.example.org/tenant"
LOCAL = "http://127.0.0.1:7777/back"
VERIFIER = "v" * 43


class Stage:
    """A provider, and the gateway's side of it."""

    def __init__(self, alg="ES256", **provider):
        self.clock = Clock()
        self.issuer = Issuer(URL, alg, self.clock)
        self.fetch = through(_Rooted(self.issuer.app), refuses=("10.0.0.1",))
        told = {
            "name": "corp", "issuer": URL, "client_id": CLIENT, "audience": CLIENT,
            "client_secret": SECRET, "role_claim": "groups",
            "role_map": {"engineers": "developer", "chiefs": "admin"}, **provider,
        }  # fmt: skip
        self.providers = Providers([Provider(**told)])
        self.keys = MemoryKeys(self.clock)
        self.sign_ins = SignIns(self.providers, self.keys, self.fetch, self.clock)

    async def told(self, token, domain=None):
        return (await self.sign_ins.identified(token, domain))[1]

    async def start(self, return_to="/", binding=""):
        """Begin; where the browser is sent, and its cookie."""
        there = await self.sign_ins.start(
            "corp", return_to=return_to, redirect_uri="https://gate/cb", binding=binding
        )
        return there.url, there.binding

    async def visit(self, url):
        """What the browser brings back."""
        parts = urlsplit(url)
        answer = await AsgiTransport(_Rooted(self.issuer.app)).request(
            "GET", f"{parts.path}?{parts.query}"
        )
        assert answer.status == 302, answer.body
        back = parse_qs(urlsplit(answer.headers["location"]).query)
        return {name: values[0] for name, values in back.items()}

    async def finish(self, back, binding):
        return await self.sign_ins.finish(
            "corp", state=back["state"], code=back["code"], binding=binding
        )


class _Rooted:
    """The issuer below a path, as some are."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        path = scope["path"].removeprefix("/tenant")
        await self._app({**scope, "path": path}, receive, send)


@pytest.fixture
def stage():
    return Stage()


@pytest.mark.parametrize("alg", ["ES256", "RS256", "EdDSA"])
async def test_a_token_of_the_issuer_tells_who_somebody_is(alg):
    stage = Stage(alg)
    found = await stage.told(stage.issuer.id_token())
    assert found.issuer == URL
    assert found.subject == "issuer|ada"
    assert (found.email, found.email_verified) == ("ada@example.org", True)
    assert found.display_name == "Ada Lovelace"
    assert found.roles == ("developer",)


@pytest.mark.parametrize("alg", ["none", "None", "HS256", "HS512", "RS256", "ES384"])
async def test_a_token_that_is_signed_in_another_way_is_refused(stage, alg):
    claims = {"iss": URL, "aud": CLIENT, "sub": "x", "iat": 1, "exp": 1 << 40}
    if alg in {"none", "HS256", "HS512"}:
        token = stage.issuer.signed(claims, alg=alg)
    else:  # the header lies
        token = _with_header(stage.issuer.signed(claims), alg=alg)
    with pytest.raises(BadSignature):
        await stage.told(token)


def _with_header(token, **more):
    head, body, signature = token.split(".")
    told = json.loads(base64.urlsafe_b64decode(head + "=="))
    made = base64.urlsafe_b64encode(json.dumps({**told, **more}).encode()).rstrip(b"=").decode()
    return f"{made}.{body}.{signature}"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"aud": ["another", "third"]},
        {"aud": None},
        {"azp": "another client"},
        {"exp": 1},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": float("nan")},
        {"iat": 1 << 40},
        {"iat": None},
        {"nbf": 1 << 40},
        {"nbf": True},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
    ],
    ids=str,
)
async def test_a_token_for_somebody_else_or_another_time_is_refused(stage, claims):
    with pytest.raises(BadClaims):
        await stage.told(stage.issuer.id_token(**claims))


async def test_a_minute_between_two_clocks_is_forgiven(stage):
    now = int(stage.clock.now().timestamp())
    await stage.told(stage.issuer.id_token(exp=now - 30, iat=now + 30, nbf=now + 30))
    with pytest.raises(BadClaims):
        await stage.told(stage.issuer.id_token(exp=now - 61))


async def test_an_audience_among_several_is_enough(stage):
    await stage.told(stage.issuer.id_token(aud=["another", CLIENT], azp=CLIENT))


@pytest.mark.parametrize("crit", [["exp"], ["b64"], [], "x"], ids=str)
async def test_a_token_that_asks_for_something_unknown_is_refused(stage, crit):
    claims = {"iss": URL, "aud": CLIENT, "sub": "x", "iat": 1, "exp": 1 << 40}
    with pytest.raises(BadSignature):
        await stage.told(stage.issuer.signed(claims, crit=crit, b64=True))


@pytest.mark.parametrize("text", ["", "x", "a.b", "a.b.c", "e30.e30.", "ä.b.c", "a." * 20_000])
async def test_what_is_no_token_is_refused_before_anybody_is_asked(stage, text):
    with pytest.raises(BadSignature):
        await stage.told(text)
    assert stage.fetch.asked == []


async def test_a_changed_token_is_refused(stage):
    head, _, signature = stage.issuer.id_token().split(".")
    other = stage.issuer.id_token(sub="issuer|eve").split(".")[1]
    with pytest.raises(BadSignature):
        await stage.told(f"{head}.{other}.{signature}")


async def test_a_token_of_an_unknown_issuer_is_refused_without_an_outbound_call(stage):
    with pytest.raises(IssuerNotAllowed):
        await stage.told(stage.issuer.id_token(iss="https://evil.example"))
    for domain in ("evil.example", "id.example.org.evil.example", "https://id.example.org", " "):
        with pytest.raises(IssuerNotAllowed):
            await stage.told(stage.issuer.id_token(), domain)
    assert stage.fetch.asked == []


async def test_the_domain_is_the_host_of_the_issuer_and_the_token_must_be_its_own(stage):
    await stage.told(stage.issuer.id_token(), "ID.example.org")
    with pytest.raises(BadClaims):
        await stage.told(stage.issuer.id_token(iss="https://evil.example"), "id.example.org")


# ------------------------------------------------------------------------------------ keys


async def test_keys_are_asked_for_once_an_hour(stage):
    for _ in range(3):
        await stage.told(stage.issuer.id_token())
    assert stage.issuer.seen == {"discovery": 1, "jwks": 1}
    stage.clock.passed = 3601
    await stage.told(stage.issuer.id_token(exp=1 << 40))
    assert stage.issuer.seen == {"discovery": 2, "jwks": 2}


async def test_an_unknown_key_is_asked_for_once_a_minute(stage):
    await stage.told(stage.issuer.id_token())
    old = stage.issuer.id_token()
    stage.issuer.rotate()
    await stage.told(stage.issuer.id_token())
    for _ in range(3):
        with pytest.raises(BadSignature):
            await stage.told(old)
    assert stage.issuer.seen["jwks"] == 2
    stage.clock.passed = 61
    with pytest.raises(BadSignature):
        await stage.told(old)
    assert stage.issuer.seen["jwks"] == 3


async def test_known_keys_serve_a_day_while_the_issuer_is_away(stage):
    await stage.told(stage.issuer.id_token())
    stage.issuer.is_down = True
    for hours in (2, 23.9):
        stage.clock.passed = hours * 3600
        await stage.told(stage.issuer.id_token(exp=1 << 40))
        await stage.told(stage.issuer.id_token(exp=1 << 40))
    assert stage.issuer.seen["discovery"] == 3
    stage.clock.passed = 24.1 * 3600
    with pytest.raises(IssuerUnreachable):
        await stage.told(stage.issuer.id_token(exp=1 << 40))


async def test_an_issuer_that_never_answered_is_away_and_not_wrong(stage):
    stage.issuer.is_down = True
    with pytest.raises(IssuerUnreachable) as refused:
        await stage.told(stage.issuer.id_token())
    assert (refused.value.status, refused.value.code) == (503, "auth_unavailable")
    stage.issuer.is_down = False
    await stage.told(stage.issuer.id_token())


@pytest.mark.parametrize(
    "overrides",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": "http://id.example.org/tenant/jwks"},
        {"token_endpoint": "file:///etc/passwd"},
        {"jwks_uri": "https://10.0.0.1/jwks"},
        {"jwks_uri": 7},
    ],
    ids=str,
)
async def test_an_issuer_that_points_elsewhere_is_not_followed(stage, overrides):
    stage.issuer.overrides = overrides
    with pytest.raises(IssuerUnreachable):
        await stage.told(stage.issuer.id_token())


# ------------------------------------------------------------------------------- the flow


async def test_who_comes_back_from_the_issuer_is_known_and_goes_where_he_wanted(stage):
    url, binding = await stage.start("/executions?x=1")
    identity, back = await stage.finish(await stage.visit(url), binding)
    assert (identity.subject, back) == ("issuer|ada", "/executions?x=1")
    asked = parse_qs(urlsplit(url).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["scope"] == ["openid email profile"]


async def test_a_reused_state_is_refused(stage):
    url, binding = await stage.start()
    back = await stage.visit(url)
    await stage.finish(back, binding)
    with pytest.raises(BadState):
        await stage.finish(back, binding)


@pytest.mark.parametrize("cookie", ["", "a" * 43, "of somebody else"])
async def test_the_cookie_of_another_browser_is_refused(stage, cookie):
    url, _ = await stage.start()
    with pytest.raises(BadState):
        await stage.finish(await stage.visit(url), cookie)


async def test_two_sign_ins_of_one_browser_share_their_cookie(stage):
    first, binding = await stage.start("/one")
    second, again = await stage.start("/two", binding)
    assert again == binding
    assert (await stage.finish(await stage.visit(first), binding))[1] == "/one"
    assert (await stage.finish(await stage.visit(second), binding))[1] == "/two"


async def test_a_sign_in_that_took_too_long_is_refused(stage):
    url, binding = await stage.start()
    back = await stage.visit(url)
    stage.clock.passed = 601
    with pytest.raises(BadState):
        await stage.finish(back, binding)


async def test_the_code_of_another_sign_in_is_refused(stage):
    """Its verifier is another one."""
    mine, binding = await stage.start()
    other, _ = await stage.start()
    back = await stage.visit(mine)
    stolen = (await stage.visit(other))["code"]
    with pytest.raises(CodeRefused):
        await stage.finish({**back, "code": stolen}, binding)


async def test_a_token_of_another_sign_in_is_refused(stage):
    url, binding = await stage.start()
    stage.issuer.claims = {"nonce": "of another one"}
    with pytest.raises(BadClaims):
        await stage.finish(await stage.visit(url), binding)


async def test_a_way_back_without_a_code_is_refused(stage):
    url, binding = await stage.start()
    back = await stage.visit(url)
    with pytest.raises(CodeRefused):
        await stage.finish({**back, "code": ""}, binding)


async def test_an_issuer_that_fails_on_the_way_is_away(stage):
    url, binding = await stage.start()
    back = await stage.visit(url)
    stage.issuer.is_down = True
    with pytest.raises(IssuerUnreachable):
        await stage.finish(back, binding)


async def test_the_bucket_holds_no_state_and_no_verifier_in_clear(stage):
    url, _ = await stage.start("/where-to")
    [key] = await stage.keys.names("o")
    kept = (await stage.keys.get(key)).value
    state = parse_qs(urlsplit(url).query)["state"][0]
    assert state not in key
    assert b"/where-to" not in kept


async def test_a_program_on_the_callers_machine_exchanges_its_code(stage):
    where = {"code_challenge": challenge_of(VERIFIER), "nonce": "n-1", "state": "s"}
    code = (await stage.visit(_authorize(where)))["code"]
    found = await stage.sign_ins.exchange(
        "corp", code=code, verifier=VERIFIER, redirect_uri=LOCAL, nonce="n-1"
    )
    assert found.subject == "issuer|ada"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"verifier": "w" * 43}, CodeRefused),
        ({"verifier": "short"}, BadState),
        ({"nonce": "n-2"}, BadClaims),
        ({"nonce": ""}, BadClaims),
        ({"redirect_uri": "https://evil.example/cb"}, BadState),
        ({"redirect_uri": "http://127.0.0.1:1/other"}, CodeRefused),
        ({"code": "unknown"}, CodeRefused),
        ({"code": "x" * 5000}, CodeRefused),
    ],
    ids=str,
)
async def test_an_exchange_that_does_not_fit_is_refused(stage, changed, fault):
    where = {"code_challenge": challenge_of(VERIFIER), "nonce": "n-1", "state": "s"}
    code = (await stage.visit(_authorize(where)))["code"]
    asked = {"code": code, "verifier": VERIFIER, "redirect_uri": LOCAL, "nonce": "n-1", **changed}
    with pytest.raises(fault):
        await stage.sign_ins.exchange("corp", **asked)


def _authorize(more):
    asked = {
        "client_id": CLIENT, "response_type": "code", "redirect_uri": LOCAL, "scope": "openid",
        "code_challenge_method": "S256", **more,
    }  # fmt: skip
    return f"{URL}/authorize?{urlencode(asked)}"


async def test_an_unknown_provider_is_told_as_such(stage):
    with pytest.raises(UnknownProvider):
        await stage.sign_ins.start("nobody", return_to="/", redirect_uri="x", binding="")


@pytest.mark.parametrize(
    "text",
    ["//evil", "/\\evil", "https://evil", "javascript:x", "evil", "", "/a\r\nX: y", "/ü", "/a b"],
)
def test_a_return_that_leads_elsewhere_becomes_the_first_page(text):
    assert safe_return(text) == "/"


@pytest.mark.parametrize("text", ["/", "/executions/1?tab=log#x", "/a//b"])
def test_a_return_to_a_page_of_ours_stays(text):
    assert safe_return(text) == text


@pytest.mark.parametrize(
    "told",
    [
        {"issuer": "http://id.example.org"},
        {"issuer": "ftp://id.example.org"},
        {"audience": ""},
        {"client_id": ""},
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"algorithms": ()},
    ],
    ids=str,
)
def test_a_provider_that_would_let_anybody_in_stops_the_start(told):
    good = {"name": "x", "issuer": URL, "client_id": "c", "audience": "a"}
    with pytest.raises(BadSetting):
        Provider(**{**good, **told})


@pytest.mark.parametrize(
    ("claims", "roles"),
    [
        ({"groups": ["chiefs", "engineers"]}, ("developer", "admin")),
        ({"groups": "chiefs"}, ("admin",)),
        ({"groups": [7, None, {"a": 1}]}, ()),
        ({"groups": {"chiefs": True}}, ()),
        ({}, ()),
    ],
    ids=str,
)
def test_roles_come_from_the_claim_by_the_map(claims, roles):
    assert next(iter(Stage().providers)).roles_of(claims) == roles


def test_a_claim_may_lie_deeper_or_have_dots_in_its_name():
    told = {"name": "x", "issuer": URL, "client_id": "c", "audience": "a"}
    deep = Provider(**told, role_claim="realm_access.roles", role_map={"a": "admin"})
    named = Provider(**told, role_claim="https://noetl.dev/roles", role_map={"a": "admin"})
    assert deep.roles_of({"realm_access": {"roles": ["a"]}}) == ("admin",)
    assert named.roles_of({"https://noetl.dev/roles": ["a"]}) == ("admin",)


def test_a_secret_is_never_shown():
    assert SECRET not in repr(next(iter(Stage().providers)))
    assert SECRET not in str(Stage().providers.shown())
