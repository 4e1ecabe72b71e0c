"""Tokens come from servers that check what they are told."""

from __future__ import annotations

import base64
import json
import traceback
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from noetl.clock import SystemClock
from noetl.secrets.source import SourceRefused, SourceUnavailable
from noetl.secrets.tokens import aws_sts, azure, google, oauth2
from noetl.secrets.tokens.base import Token, left_of, seconds
from noetl.secrets.tokens.bearer import Bearer
from noetl.secrets.tokens.gcp_iam import Impersonation
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.fakes import oauth as known
from tests.fakes.azure import SCOPE, Azure
from tests.fakes.google import EMAIL, OTHER, PEM, Google, decoded, jwt
from tests.fakes.oauth import OAuth

CLOCK = SystemClock()
WRONG = "canary-wrong"


def served(fake):
    @pytest.fixture(scope="module")
    def web():
        made = fake()
        yield made
        made.stop()

    return web


oauth_web, google_web, azure_web = served(OAuth), served(Google), served(Azure)


@pytest.fixture
async def fetch():
    fetcher = Fetcher(Guard(egress=Egress(mode="open")))
    yield fetcher
    await fetcher.close()


# ---------------------------------------------------------------------------- OAuth 2


def client(web, **more):
    return {
        "token_url": f"{web.url}/oauth/token",
        "client_id": known.CLIENT,
        "client_secret": known.SECRET,
        **more,
    }


@pytest.mark.parametrize("style", ["body", "basic"])
async def test_a_client_gets_a_token_for_itself(oauth_web, fetch, style):
    token = await oauth2.mint_of(fetch, client(oauth_web, auth_style=style, scopes=["a", "b"]))
    assert token.fields["access_token"].startswith("canary-access-")
    assert token.fields["token"] == token.fields["access_token"]
    assert token.fields["scope"] == "a b"
    assert token.expires_in == 3600
    assert "canary" not in repr(token)


async def test_a_refresh_token_is_used_once_and_answered_with_the_next(oauth_web, fetch):
    oauth_web.refresh.add("canary-refresh-first")
    fields = client(oauth_web, refresh_token="canary-refresh-first")  # noqa: S106 - of a stand-in
    one = await oauth2.mint_of(fetch, fields)
    two = await oauth2.mint_of(fetch, {**fields, "refresh_token": one.fields["refresh_token"]})
    assert two.fields["access_token"] != one.fields["access_token"]
    with pytest.raises(SourceRefused, match="400 invalid_grant") as caught:
        await oauth2.mint_of(fetch, fields)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


async def test_a_name_and_a_password(oauth_web, fetch):
    name, password = known.PERSON
    fields = client(oauth_web, grant_type="password", username=name, password=password)
    assert (await oauth2.mint_of(fetch, fields)).fields["access_token"]
    with pytest.raises(SourceRefused) as caught:
        await oauth2.mint_of(fetch, {**fields, "password": WRONG})
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "application/json"])
async def test_the_author_writes_the_request(oauth_web, fetch, kind):
    token = await oauth2.mint(
        fetch,
        f"{oauth_web.url}/oauth/token",
        method="post",
        headers={"Content-Type": kind},
        data={
            "grant_type": "client_credentials",
            "client_id": known.CLIENT,
            "client_secret": known.SECRET,
            "scope": None,
        },
    )
    assert token.fields["token_type"] == "bearer"  # noqa: S105 - a type


async def test_a_wrong_client_is_refused_by_the_word_of_the_server(oauth_web, fetch):
    with pytest.raises(SourceRefused, match="401 invalid_client") as caught:
        await oauth2.mint_of(fetch, client(oauth_web, client_secret=WRONG))
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "token_url"),
        ({"token_url": "x"}, "client_id"),
        ({"token_url": "x", "client_id": "a"}, "client_secret"),
        ({"token_url": "x", "client_id": "a", "grant_type": "password"}, "username"),
        ({"token_url": "x", "client_id": "a", "grant_type": "implicit"}, "implicit"),
    ],
)
async def test_a_credential_that_lacks_something_is_told_what(fetch, fields, word):
    with pytest.raises(SourceRefused, match=word):
        await oauth2.mint_of(fetch, fields)


def test_a_public_client_has_no_secret():
    data, headers = oauth2.grant_of({"client_id": "a", "refresh_token": "r"})
    assert data == {"grant_type": "refresh_token", "refresh_token": "r", "client_id": "a"}
    assert headers == {}


@pytest.mark.parametrize(
    ("told", "expires_in"),
    [(60, 60.0), ("60", 60.0), (0, None), (-1, None), (None, None), ("soon", None), (True, None)],
)
async def test_an_issuer_tells_when_a_token_ends(oauth_web, fetch, told, expires_in):
    oauth_web.expires_in = told
    try:
        token = await oauth2.mint_of(fetch, client(oauth_web))
    finally:
        oauth_web.expires_in = 3600
    assert token.expires_in == expires_in


# ---------------------------------------------------------------------------- Google


async def test_a_service_account_signs_for_an_access_token(google_web, fetch):
    account = google.ServiceAccount.of(json.dumps(google_web.account))
    token = await google.mint(fetch, CLOCK, account=account)
    assert google_web.tokens[token.fields["access_token"]] == google.CLOUD
    assert token.expires_in == 3600
    assert PEM not in repr(account)


async def test_a_service_account_signs_for_an_identity_token(google_web, fetch):
    account = google.account_of({"service_account": google_web.account})
    token = await google.mint_id_token(
        fetch, CLOCK, audience="https://svc.run.app", account=account
    )
    claims = json.loads(decoded(token.fields["id_token"].split(".")[1]))
    assert (claims["aud"], claims["email"]) == ("https://svc.run.app", EMAIL)
    assert 3500 < token.expires_in <= 3600


async def test_the_machine_itself_gets_tokens(google_web, fetch):
    async def metadata(ask):
        assert ask.url.startswith("http://metadata.google.internal/computeMetadata/v1/")
        return await fetch(
            replace(ask, url=ask.url.replace("http://metadata.google.internal", google_web.url))
        )

    token = await google.mint(fetch, CLOCK, scope="a b", metadata=metadata)
    assert google_web.tokens[token.fields["token"]] == "a,b"
    token = await google.mint_id_token(fetch, CLOCK, audience="aud", metadata=metadata)
    assert json.loads(decoded(token.fields["token"].split(".")[1]))["aud"] == "aud"


async def test_another_key_does_not_sign_for_the_account(google_web, fetch):
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only here
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - only here

    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = google.ServiceAccount.of({**google_web.account, "private_key": pem.decode()})
    with pytest.raises(SourceRefused, match="400 invalid_grant"):
        await google.mint(fetch, CLOCK, account=account)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("", "no JSON map"),
        ("canary", "no JSON map"),
        ("[]", "no JSON map"),
        ({}, "client_email"),
        ({"client_email": "a"}, "private_key"),
    ],
)
def test_what_is_no_service_account(given, word):
    with pytest.raises(SourceRefused, match=word) as caught:
        google.ServiceAccount.of(given)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


async def test_a_private_key_that_is_none_is_not_shown(google_web, fetch):
    account = google.ServiceAccount.of({**google_web.account, "private_key": "canary"})
    with pytest.raises(SourceRefused, match="cannot be read") as caught:
        await google.mint(fetch, CLOCK, account=account)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


async def test_nobody_is_no_identity(fetch):
    assert google.account_of({}) is None
    with pytest.raises(SourceRefused, match="no service account"):
        await google.mint(fetch, CLOCK)
    with pytest.raises(SourceRefused, match="audience"):
        await google.mint_id_token(fetch, CLOCK, audience="")


async def test_one_service_account_acts_for_another(google_web, fetch):
    async def bearer():
        return google_web.issue(google.CLOUD)

    def acting(email):
        base = f"{google_web.url}/v1"
        return Impersonation(fetch, CLOCK, bearer=bearer, email=email, base=base)

    token = await acting(OTHER).mint("scope-a scope-b")
    assert google_web.tokens[token.fields["access_token"]] == "scope-a scope-b"
    assert 3500 < token.expires_in <= 3600
    token = await acting(OTHER).mint_id_token("aud")
    assert json.loads(decoded(token.fields["id_token"].split(".")[1]))["email"] == OTHER
    with pytest.raises(SourceRefused, match="403 PERMISSION_DENIED"):
        await acting("no@acme.com").mint("s")
    with pytest.raises(SourceRefused, match="not the address"):
        acting("../x")


# ---------------------------------------------------------------------------- Azure, AWS


async def test_an_application_of_azure_gets_a_token(azure_web, fetch):
    token = await azure.mint(fetch, azure_web.fields, scope=SCOPE)
    assert token.fields["access_token"] in azure_web.tokens
    assert token.expires_in == 3599
    with pytest.raises(SourceRefused, match="tenant"):
        await azure.mint(fetch, {**azure_web.fields, "tenant_id": "../x"}, scope=SCOPE)
    bad = {**azure_web.fields, "client_secret": WRONG}
    with pytest.raises(SourceRefused, match="invalid_client") as caught:
        await azure.mint(fetch, bad, scope=SCOPE)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "more",
    [{}, {"role_arn": "arn:aws:iam::123456789012:role/loader", "external_id": "x&y"}],
    ids=["session", "role"],
)
async def test_keys_of_aws_that_end(s3_server, fetch, more):
    fields = {**s3_server.fields, "duration_seconds": 900, **more}
    token = await aws_sts.mint(fetch, CLOCK, fields)
    assert set(token.fields) == {"access_key_id", "secret_access_key", "session_token", "region"}
    assert all(token.fields.values())
    assert 800 < token.expires_in <= 901


@pytest.mark.parametrize("more", [{"region": "eu/../x"}, {"duration_seconds": "1h"}])
async def test_what_aws_cannot_be_asked(s3_server, fetch, more):
    with pytest.raises(SourceRefused):
        await aws_sts.mint(fetch, CLOCK, {**s3_server.fields, **more})


# ---------------------------------------------------------------------------- keeping one


class Clock(SystemClock):
    at = 0.0

    def monotonic(self):
        return self.at


async def test_a_bearer_is_renewed_before_it_ends_and_kept_to_its_end_in_an_outage():
    clock, made, is_down = Clock(), [], False

    async def mint():
        if is_down:
            raise SourceUnavailable("down")
        made.append(f"t{len(made)}")
        return Token(fields={"access_token": made[-1]}, expires_in=600.0)

    bearer = Bearer(clock, mint)
    assert [await bearer(), await bearer()] == ["t0", "t0"]
    clock.at = 541.0
    assert await bearer() == "t1"
    is_down = True
    clock.at = 541.0 + 599
    assert await bearer() == "t1"
    clock.at = 541.0 + 600
    with pytest.raises(SourceUnavailable):
        await bearer()


async def test_a_token_that_does_not_say_when_it_ends_is_used_once():
    made = []

    async def mint():
        made.append(1)
        return Token(fields={"access_token": "t"})

    bearer = Bearer(Clock(), mint)
    await bearer()
    await bearer()
    assert len(made) == 2


def test_the_end_of_a_jwt_is_read():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert left_of(jwt({"exp": now.timestamp() + 90}), now) == 90.0
    body = base64.urlsafe_b64encode(b"[]").decode()
    for text in ("", "a.b.c", f"a.{body}.c", jwt({}), jwt({"exp": "x"}), jwt({"exp": 1})):
        assert left_of(text, now) is None
    assert seconds(float("nan")) is None
