"""Senders of every scheme: who signs a delivery rightly, and the listener that takes it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noetl.dsl.subscription.verify import (
    ApiKeyVerify,
    BasicVerify,
    BearerVerify,
    DeliveryId,
    Ed25519Verify,
    GithubVerify,
    HmacVerify,
    JwtVerify,
    PubsubVerify,
    ShopifyVerify,
    SlackVerify,
    StandardVerify,
    StripeVerify,
    SvixVerify,
    Timestamp,
)
from noetl.gateway.ingress.raw import Raw
from noetl.gateway.ingress.verify.verdict import Known, verify
from noetl.gateway.oidc.tokens import key_of
from tests.fakes.issuer import Issuer

NOW = 1_700_000_000
BODY = b'{"id": "evt_1", "event_id": "Ev1", "amount": 12, "note": "caf\xc3\xa9"}'
SECRET = "canary-shared-secret-0123456789abcdef"  # noqa: S105 - of a stand-in
OLD = "canary-secret-before-0123456789abcdef"
AUDIENCE = "https://gate.example.org/ingress/orders"
ACCOUNT = "push@project.iam.gserviceaccount.com"
ISSUER = "https://id.example.org"
WHSEC = "whsec_" + base64.b64encode(b"canary-standard-webhooks").decode()
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key().public_bytes_raw()
SECRETS = {
    "new": {"value": SECRET},
    "old": {"value": OLD},
    "standard": {"value": WHSEC},
    "user": {"username": "ada", "password": SECRET},
    "public": {"value": base64.b64encode(PUBLIC).decode()},
    "whpk": {"value": "whpk_" + base64.b64encode(PUBLIC).decode()},
    "empty": {"value": ""},
}


def digest(text, secret=SECRET, algorithm="sha256"):
    return hmac.digest(secret if isinstance(secret, bytes) else secret.encode(), text, algorithm)


def b64(data):
    return base64.b64encode(data).decode()


class Clock:
    def __init__(self, at=NOW):
        self.at = at

    def now(self):
        return datetime.fromtimestamp(self.at, UTC)


@cache
def issuer(alg, url=ISSUER):
    return Issuer(url, alg, Clock())


def keys(of):
    """What is known of the keys of an issuer."""
    known = {of.key.kid: key_of(of.key.as_dict(private=False))}
    return known.get


@dataclass(frozen=True)
class Sender:
    """A delivery that verifies, and all that it is verified with."""

    name: str
    config: Any
    raw: Raw
    secrets: Any = None
    keys: Any = None
    header: str = ""
    """The header with what proves it."""
    missing: str = "missing_signature"
    bad: str = "bad_signature"
    covers_body: bool = True
    time_header: str = ""
    id: str | None = None

    def verdict(self, raw=None, now=NOW, config=None, secrets=None, keys=None):
        more = {"keys": keys or self.keys} if keys or self.keys else {}
        known = Known(secrets=SECRETS if secrets is None else secrets, **more)
        return verify(config or self.config, raw or self.raw, now, known)


def raw_of(body=BODY, query=b"", **headers):
    pairs = tuple((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())
    return Raw(method="POST", path="/ingress/orders", query=query, headers=pairs, body=body)


def with_header(raw, name, value):
    """The request with another value of a header; none removes it."""
    kept = tuple(pair for pair in raw.headers if pair[0].lower() != name.encode())
    return replace(raw, headers=kept if value is None else (*kept, (name.encode(), value)))


def doubled(raw, name, value=None):
    found = raw.one(name)
    more = (name.title().encode(), found if value is None else value)
    return replace(raw, headers=(*raw.headers, more))


# ---------------------------------------------------------------------------- one for each scheme


def hmac_sender(encoding="hex", template=None, algorithm="sha256", prefix=None, sent=NOW):
    stamped = template is not None and "{timestamp}" in template
    config = HmacVerify(
        type="hmac_sha256", secret=("new", "old"), encoding=encoding, template=template,
        algorithm=algorithm, prefix=prefix,
        timestamp=Timestamp(header="x-time") if stamped else None,
        id=DeliveryId(header="x-id"),
    )  # fmt: skip
    signed = (template or "{body}").encode()
    for name, value in {
        b"{timestamp}": str(sent).encode(), b"{id}": b"d-1", b"{method}": b"POST",
        b"{path}": b"/ingress/orders", b"{header:X-Tenant}": b"acme", b"{body}": BODY,
    }.items():  # fmt: skip
        signed = signed.replace(name, value)
    made = digest(signed, algorithm=algorithm)
    text = {
        "hex": made.hex(), "base64": b64(made),
        "base64url": base64.urlsafe_b64encode(made).decode().rstrip("="),
    }[encoding]  # fmt: skip
    raw = raw_of(x_signature=(prefix or "") + text, x_time=str(sent), x_id="d-1", x_tenant="acme")
    return Sender(
        "hmac_sha256", config, raw, header="x-signature", id="d-1",
        time_header="x-time" if stamped else "",
    )  # fmt: skip


def stripe(sent=NOW):
    made = digest(b"%d." % sent + BODY).hex()
    raw = raw_of(stripe_signature=f"t={sent},v0=abc,v1={'0' * 64},v1={made}")
    config = StripeVerify(type="stripe", secret=("new", "old"))
    return Sender("stripe", config, raw, header="stripe-signature", id="evt_1")


def github(body=BODY):
    raw = raw_of(body, x_hub_signature_256="sha256=" + digest(body).hex(), x_github_delivery="gh-1")
    config = GithubVerify(type="github", secret=("new", "old"))
    return Sender("github", config, raw, header="x-hub-signature-256", id="gh-1")


def shopify():
    raw = raw_of(x_shopify_hmac_sha256=b64(digest(BODY)), x_shopify_webhook_id="sh-1")
    config = ShopifyVerify(type="shopify", secret=("new", "old"))
    return Sender("shopify", config, raw, header="x-shopify-hmac-sha256", id="sh-1")


def slack(sent=NOW, body=BODY):
    made = digest(b"v0:%d:" % sent + body).hex()
    raw = raw_of(body, x_slack_signature=f"v0={made}", x_slack_request_timestamp=str(sent))
    config = SlackVerify(type="slack", secret=("new", "old"))
    return Sender(
        "slack", config, raw, header="x-slack-signature", id="Ev1",
        time_header="x-slack-request-timestamp",
    )  # fmt: skip


def standard(prefix="webhook", version="v1", sent=NOW):
    signed = b"msg_1.%d." % sent + BODY
    if version == "v1":
        made = b64(digest(signed, base64.b64decode(WHSEC.removeprefix("whsec_"))))
    else:
        made = b64(PRIVATE.sign(signed))
    headers = {
        f"{prefix}_id": "msg_1", f"{prefix}_timestamp": str(sent),
        f"{prefix}_signature": f"v9,x v1,{b64(bytes(32))} {version},{made}",
    }  # fmt: skip
    cls = StandardVerify if prefix == "webhook" else SvixVerify
    name = "standard_webhooks" if prefix == "webhook" else "svix"
    config = cls(type=name, secret=("standard", "whpk"))
    return Sender(
        name, config, raw_of(**headers), header=f"{prefix}-signature", id="msg_1",
        time_header=f"{prefix}-timestamp",
    )  # fmt: skip


def ed25519(sent=NOW, encoding="hex"):
    config = Ed25519Verify(
        type="ed25519", public_key=("public",), header="x-signature-ed25519", encoding=encoding,
        template="{timestamp}{body}", timestamp=Timestamp(header="x-signature-timestamp"),
    )  # fmt: skip
    made = PRIVATE.sign(str(sent).encode() + BODY)
    text = made.hex() if encoding == "hex" else b64(made)
    raw = raw_of(x_signature_ed25519=text, x_signature_timestamp=str(sent))
    return Sender(
        "ed25519", config, raw, header="x-signature-ed25519", time_header="x-signature-timestamp"
    )


_TOKEN = {"missing": "missing_token", "bad": "bad_token", "covers_body": False}


def bearer():
    config = BearerVerify(type="bearer", secret=("new", "old"))
    raw = raw_of(authorization=f"Bearer {SECRET}")
    return Sender("bearer", config, raw, header="authorization", **_TOKEN)


def basic():
    config = BasicVerify(type="basic", user="user", password=("user", "old"))
    raw = raw_of(authorization="Basic " + b64(f"ada:{SECRET}".encode()))
    return Sender("basic", config, raw, header="authorization", **_TOKEN)


def api_key():
    config = ApiKeyVerify(type="api_key", secret=("new", "old"))
    return Sender("api_key", config, raw_of(x_api_key=SECRET), header="x-api-key", **_TOKEN)


def token_sender(name, config, claims, of, **header):
    told = {"iat": NOW, "exp": NOW + 300, **claims}
    token = of.signed({k: v for k, v in told.items() if v is not None}, **header)
    return Sender(
        name, config, raw_of(authorization=f"Bearer {token}"), keys=keys(of),
        header="authorization", missing="missing_token", bad="oidc_bad_signature",
        covers_body=False,
    )  # fmt: skip


def pubsub(of=None, header=None, **claims):
    config = PubsubVerify(type="pubsub_oidc", audience=AUDIENCE, service_account=ACCOUNT)
    told = {
        "iss": "https://accounts.google.com", "aud": AUDIENCE, "email": ACCOUNT,
        "email_verified": True, "sub": "1", **claims,
    }  # fmt: skip
    return token_sender("pubsub_oidc", config, told, of or issuer("RS256"), **(header or {}))


def jwt(name="jwt", alg="ES256", of=None, header=None, config=None, **claims):
    made = {"issuer": ISSUER, "audience": AUDIENCE, "claims": {"env": "prod"}, **(config or {})}
    told = {"iss": ISSUER, "aud": [AUDIENCE, "other"], "env": "prod", "sub": "1", **claims}
    return token_sender(
        name, JwtVerify(type=name, **made), told, of or issuer(alg), **(header or {})
    )


def hs256(**claims):
    """A token under a secret of the wallet."""
    told = {"iss": ISSUER, "aud": AUDIENCE, "env": "prod", "iat": NOW, "exp": NOW + 300, **claims}
    config = JwtVerify(
        type="jwt", issuer=ISSUER, audience=AUDIENCE, algorithms=("hs256",), key_=("new", "old")
    )
    return Sender(
        "jwt", config, raw_of(authorization="Bearer " + hs256_token(told, SECRET.encode())),
        header="authorization", missing="missing_token", bad="oidc_bad_signature",
        covers_body=False,
    )  # fmt: skip


def hs256_token(claims, secret, **header):
    head = {"alg": "HS256", "typ": "JWT", **header}
    parts = [_b64url(json.dumps(one).encode()) for one in (head, claims)]
    text = ".".join(parts)
    return f"{text}.{_b64url(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def _b64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@cache
def senders():
    """One for each scheme, and some for each of its forms."""
    return {
        "hmac_sha256": hmac_sender(),
        "hmac_sha256-base64": hmac_sender("base64"),
        "hmac_sha256-base64url": hmac_sender("base64url"),
        "hmac_sha256-sha512": hmac_sender(algorithm="sha512"),
        "hmac_sha256-template": hmac_sender(
            template="v1:{timestamp}:{id}:{method}:{path}:{header:X-Tenant}:{body}", prefix="v1="
        ),
        "stripe": stripe(),
        "github": github(),
        "shopify": shopify(),
        "slack": slack(),
        "standard_webhooks": standard(),
        "standard_webhooks-v1a": standard(version="v1a"),
        "svix": standard("svix"),
        "ed25519": ed25519(),
        "ed25519-base64": ed25519(encoding="base64"),
        "bearer": bearer(),
        "basic": basic(),
        "api_key": api_key(),
        "pubsub_oidc": pubsub(),
        "jwt": jwt(),
        "jwt-rs256": jwt(alg="RS256"),
        "jwt-eddsa": jwt(alg="EdDSA"),
        "jwt-hs256": hs256(),
        "oidc": jwt("oidc"),
    }
