"""What the server signs, gateways believe: every scheme, in one round through both of them."""

from __future__ import annotations

import base64

import pytest

from noetl.dsl.parse import parse
from noetl.gateway.ingress.raw import Raw
from noetl.gateway.ingress.verify.verdict import Known, Rejected, Verified, verify
from noetl.server.pushed.signing import SIGNERS, Draft, sign
from noetl.server.subscriptions.errors import CannotSign

NOW = 1_767_225_600
SECRET = "a-signing-canary-of-32-characters"  # noqa: S105 - of nobody
PUBLIC = "whpk_" + base64.b64encode(b"k" * 32).decode()
WEBHOOK = "whsec_" + base64.b64encode(b"standard-canary-of-24-bytes").decode()
SECRETS = {
    "hook": {"value": SECRET}, "old": {"value": "another"}, "std": {"secret": WEBHOOK},
    "who": {"username": "ann"}, "empty": {}, "public": {"value": PUBLIC},
    "pem": {"key": "-----BEGIN PUBLIC KEY-----"},
}  # fmt: skip
BODY = b'{"id":"evt_1","scan":{"id":7},"text":"{{ 7*7 }}"}'
HEAD = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {name: orders, path: subs/orders}
spec:
  source: webhook
  mode: push
  dispatch: {playbook: shop/take}
  ingress:
    gateway_path: /ingress/orders
    verify: %s
"""
OF_ALL = (
    "{type: hmac_sha256, secret: hook, template: '{timestamp}.{id}.{method}{path}.{body}', "
    "timestamp: {header: x-time}, id: {header: x-id}}"
)
FIT = [
    "{type: hmac_sha256, secret: hook}",
    "{type: hmac_sha256, secret: [hook, old], header: x-sig, encoding: base64, prefix: 'v1='}",
    "{type: hmac_sha256, secret: hook, algorithm: sha512, encoding: base64url}",
    OF_ALL,
    "{type: hmac_sha256, secret: hook, template: '{id}:{header:x-more}:{body}', id: {body: id}}",
    "{type: hmac_sha256, secret: hook, header: stripe-signature}",
    "{type: hmac_sha256, secret: hook, header: x-hub-signature-256}",
    "{type: hmac_sha256, secret: hook, header: x-slack-signature}",
    "{type: stripe, secret: hook}",
    "{type: github, secret: [empty, hook]}",
    "{type: slack, secret: hook}",
    "{type: standard_webhooks, secret: [public, std]}",
    "{type: svix, secret: std}",
    "{type: shopify, secret: hook}",
    "{type: bearer, secret: hook}",
    "{type: bearer, secret: hook, header: x-token}",
    "{type: basic, user: who, password: hook}",
    "{type: api_key, secret: hook}",
    "{type: api_key, secret: hook, query: key, allow_query: true}",
    "{type: jwt, issuer: me, audience: you, algorithms: [hs256], key: hook, claims: {a: 1}}",
    "{type: oidc, issuer: me, audience: you, algorithms: [hs256], key: hook}",
]
UNFIT = [
    "{type: ed25519, public_key: hook}",
    "{type: pubsub_oidc, audience: a, service_account: a@b.c}",
    "{type: jwt, issuer: me, audience: you}",
    "{type: jwt, issuer: me, audience: you, algorithms: [rs256], key: pem}",
    "{type: jwt, issuer: me, audience: you, algorithms: [hs256], key: pem}",
    "{type: github, secret: empty}",
    "{type: github, secret: gone}",
    "{type: standard_webhooks, secret: public}",
    "{type: basic, user: empty, password: hook}",
]


def config(text: str):
    model = parse(HEAD % text).model
    return model.spec.ingress.verify


def signed(text: str, **more) -> Draft:
    draft = Draft(path="/ingress/orders", body=BODY, now=NOW, id="4711", **more)
    sign(config(text), SECRETS, draft)
    return draft


def judged(text: str, draft: Draft, now: float = NOW) -> Verified | Rejected:
    headers = tuple((k.encode(), v.encode("latin-1")) for k, v in draft.headers.items())
    raw = Raw(
        method="POST", path=draft.path, query=draft.query.encode(), headers=headers,
        body=draft.body,
    )  # fmt: skip
    return verify(config(text), raw, now, Known(secrets=SECRETS))


@pytest.mark.parametrize("text", FIT)
def test_a_gateway_believes_what_the_server_has_signed(text: str) -> None:
    draft = signed(text, headers={"x-more": "m"}, query="a=1")
    assert isinstance(judged(text, draft), Verified)
    assert SECRET not in repr(draft)


@pytest.mark.parametrize("text", [one for one in FIT if "sign" in one or "hmac" in one])
def test_a_byte_more_is_not_believed(text: str) -> None:
    draft = signed(text)
    draft.body += b" "
    assert isinstance(judged(text, draft), Rejected)


@pytest.mark.parametrize("text", UNFIT)
def test_what_only_its_sender_can_sign_is_refused_without_a_secret_in_the_words(text: str) -> None:
    with pytest.raises(CannotSign) as refused:
        signed(text)
    assert (refused.value.code, refused.value.status) == ("cannot_sign", 422)
    assert SECRET not in f"{refused.value.message}{refused.value.hint}"


def test_no_rules_at_all_are_refused() -> None:
    with pytest.raises(CannotSign):
        sign(None, SECRETS, Draft(path="/", body=b""))


def test_ids_and_times_of_the_caller_are_signed_as_they_are() -> None:
    text = "{type: standard_webhooks, secret: std}"
    draft = signed(text, headers={"webhook-id": "mine", "webhook-timestamp": str(NOW - 301)})
    assert draft.headers["webhook-id"] == "mine"
    assert judged(text, draft) == Rejected("stale_timestamp")
    assert isinstance(judged(text, draft, NOW - 2), Verified)
    text = "{type: slack, secret: hook}"
    old = signed(text, headers={"x-slack-request-timestamp": str(NOW - 301)})
    assert judged(text, old) == Rejected("stale_timestamp")


def test_an_id_of_a_body_without_one_is_empty_on_both_sides() -> None:
    text = "{type: hmac_sha256, secret: hook, template: '{id}:{body}', id: {body: a.0.b}}"
    for body in (b"no json", b'{"a":[]}', b'{"a":[{"b":true}]}', b'{"a":[{"b":"x"}]}', b'{"a":1}'):
        draft = Draft(path="/ingress/orders", body=body, now=NOW, id="1")
        sign(config(text), SECRETS, draft)
        assert isinstance(judged(text, draft), Verified)


def test_a_placeholder_that_nothing_stands_for_cannot_be_signed() -> None:
    draft = Draft(path="/ingress/orders", body=BODY, now=NOW, id="1")
    rules = config("{type: hmac_sha256, secret: hook}")
    object.__setattr__(rules, "template", "{timestamp}.{body}")
    with pytest.raises(CannotSign):
        sign(rules, SECRETS, draft)


def test_every_scheme_has_a_signer_or_is_known_to_have_none() -> None:
    from noetl.dsl.subscription.verify import VERIFIERS  # noqa: PLC0415 - of this test alone

    assert VERIFIERS.keys() - SIGNERS.keys() == {"ed25519", "pubsub_oidc"}
