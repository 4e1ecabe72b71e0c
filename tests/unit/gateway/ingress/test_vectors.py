"""Examples as providers publish them, each with one changed byte; our own where there are none."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from noetl.dsl.subscription.verify import (
    Ed25519Verify,
    GithubVerify,
    HmacVerify,
    ShopifyVerify,
    SlackVerify,
    StandardVerify,
    StripeVerify,
    SvixVerify,
)
from noetl.gateway.ingress.verify.verdict import Known, Rejected, Verified, verify
from noetl.secrets import ed25519
from tests.unit.gateway.ingress.senders import raw_of, with_header

STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
    b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
    b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
    b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
GITHUB_RAW = raw_of(
    b"Hello, World!",
    x_hub_signature_256="sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
)
SLACK_RAW = raw_of(
    SLACK_BODY,
    x_slack_signature="v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    x_slack_request_timestamp="1531420618",
)
GITHUB_SECRET = "It's a Secret to Everybody"  # noqa: S105 - published
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105 - published


def standard(prefix):
    return raw_of(
        b'{"test": 2432232314}',
        **{
            f"{prefix}_id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            f"{prefix}_timestamp": "1614265330",
            f"{prefix}_signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
    )


PUBLISHED = {
    "github": (
        GithubVerify(type="github", secret=("a",)), GITHUB_RAW, GITHUB_SECRET, 0,
        "x-hub-signature-256",
    ),
    "github-by-its-header": (
        HmacVerify(type="hmac_sha256", secret=("a",), header="x-hub-signature-256"), GITHUB_RAW,
        GITHUB_SECRET, 0, "x-hub-signature-256",
    ),
    "slack": (
        SlackVerify(type="slack", secret=("a",)), SLACK_RAW, SLACK_SECRET, 1531420618,
        "x-slack-signature",
    ),
    "slack-by-its-header": (
        HmacVerify(type="hmac_sha256", secret=("a",), header="x-slack-signature"), SLACK_RAW,
        SLACK_SECRET, 1531420618, "x-slack-signature",
    ),
    "standard_webhooks": (
        StandardVerify(type="standard_webhooks", secret=("a",)), standard("webhook"), STANDARD,
        1614265330, "webhook-signature",
    ),
    "svix": (
        SvixVerify(type="svix", secret=("a",)), standard("svix"), STANDARD, 1614265330,
        "svix-signature",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_published_example_verifies_and_one_changed_byte_fails(name):
    config, raw, secret, now, header = PUBLISHED[name]
    known = Known(secrets={"a": {"value": secret}})
    assert isinstance(verify(config, raw, now, known), Verified)
    for index in range(len(raw.body)):
        changed = bytes([*raw.body[:index], raw.body[index] ^ 1, *raw.body[index + 1 :]])
        found = verify(config, replace(raw, body=changed), now, known)
        assert found == Rejected("bad_signature")
    value = raw.one(header)
    for index in range(len(value)):
        changed = bytes([*value[:index], value[index] ^ 1, *value[index + 1 :]])
        found = verify(config, with_header(raw, header, changed), now, known)
        assert found == Rejected("bad_signature")


def test_the_scheme_of_a_provider_is_known_by_its_header():
    config, raw, secret, _, _ = PUBLISHED["github-by-its-header"]
    found = verify(config, raw, 0, Known(secrets={"a": {"value": secret}}))
    assert found.scheme == "github"
    own = replace(config, template="{body}")
    found = verify(own, raw, 0, Known(secrets={"a": {"value": secret}}))
    assert found.scheme == "hmac_sha256"


# No signature with its secret is published by these: the text below is what their pages say how to
# sign, the digest is computed here with the standard library alone.

STRIPE_BODY = b'{"id": "evt_1NG8Du2eZvKYlo2CUI79vXWy", "object": "event"}'


def test_an_example_of_our_own_for_stripe():
    secret = "whsec_test_secret"  # noqa: S105 - of an example
    made = hmac.new(secret.encode(), b"1492774577." + STRIPE_BODY, hashlib.sha256).hexdigest()
    raw = raw_of(STRIPE_BODY, stripe_signature=f"t=1492774577,v1={made},v0=6ffbb59b2300aae63f27")
    known = Known(secrets={"a": {"value": secret}})
    for config in (
        StripeVerify(type="stripe", secret=("a",)),
        HmacVerify(type="hmac_sha256", secret=("a",), header="stripe-signature"),
    ):
        found = verify(config, raw, 1492774577, known)
        assert (found.scheme, found.id) == ("stripe", "evt_1NG8Du2eZvKYlo2CUI79vXWy")
        assert found.replay_key == hashlib.sha256(b"1492774577." + STRIPE_BODY).hexdigest()
        assert found.replay_window_s == 600
        changed = replace(raw, body=STRIPE_BODY.replace(b"evt_1", b"evt_2"))
        assert verify(config, changed, 1492774577, known) == Rejected("bad_signature")


def test_an_example_of_our_own_for_shopify():
    body = json.dumps({"id": 820982911946154508, "email": "jon@example.com"}).encode()
    made = base64.b64encode(hmac.new(b"hush", body, hashlib.sha256).digest()).decode()
    raw = raw_of(body, x_shopify_hmac_sha256=made, x_shopify_webhook_id="b54557e4-bdd9")
    known = Known(secrets={"a": {"value": "hush"}})
    config = ShopifyVerify(type="shopify", secret=("a",))
    assert verify(config, raw, 0, known).id == "b54557e4-bdd9"
    assert verify(config, replace(raw, body=body + b" "), 0, known) == Rejected("bad_signature")


RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
        ("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701"
         "cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
        ("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d"
         "0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "message", "signature"), RFC_8032, ids=["empty", "one-byte"])
def test_the_examples_of_rfc_8032_verify(key, message, signature):
    body = bytes.fromhex(message)
    assert ed25519.verify(bytes.fromhex(key), bytes.fromhex(signature), body)
    assert not ed25519.verify(bytes.fromhex(key), bytes.fromhex(signature), body + b"x")
    raw = raw_of(body, x_signature=signature.upper())
    known = Known(secrets={"a": {"value": key}})
    config = Ed25519Verify(type="ed25519", public_key=("a",))
    assert isinstance(verify(config, raw, 0, known), Verified)
    changed = with_header(raw, "x-signature", signature.replace("0", "1", 1).encode())
    assert verify(config, changed, 0, known) == Rejected("bad_signature")
