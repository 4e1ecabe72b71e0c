"""Details of schemes: prefixes, encodings, templates, ids, queries; and the type of a verdict."""

from __future__ import annotations

import base64
import copy
import hashlib
import pickle
from dataclasses import replace

import pytest

from noetl.dsl.subscription.verify import (
    ApiKeyVerify,
    BearerVerify,
    DeliveryId,
    Ed25519Verify,
    HmacVerify,
    StandardVerify,
    StripeVerify,
    Timestamp,
    Verify,
)
from noetl.gateway.ingress.raw import MOST_PARAMETERS, Doubled, Raw, json_of, text_at
from noetl.gateway.ingress.verify.proof import Proof
from noetl.gateway.ingress.verify.verdict import Known, Rejected, Verified, verify
from noetl.secrets import ed25519
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.senders import BODY, NOW, SECRET, SECRETS, digest, raw_of

KNOWN = Known(secrets=SECRETS)


def hmac_config(**more):
    return HmacVerify(type="hmac_sha256", secret=("new",), **more)


# ---------------------------------------------------------------------------- the type


def test_nobody_else_says_that_a_delivery_is_verified():
    with pytest.raises(TypeError, match="only a verifier"):
        Verified(object(), by.github().raw, "github", Proof(), 1)
    with pytest.raises(TypeError):
        Verified()
    with pytest.raises(TypeError, match="nothing else"):
        type("Mine", (Verified,), {})
    found = by.github().verdict()
    for change in (
        lambda: setattr(found, "id", "x"),
        lambda: delattr(found, "id"),
        lambda: setattr(found, "more", "x"),
    ):
        with pytest.raises(AttributeError):
            change()
    for again in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            again(found)
    assert repr(found) == "Verified(scheme='github')"


@pytest.mark.parametrize("config", [None, Verify(type="none"), Verify(type=""), Verify(type="x")])
def test_a_listener_without_a_scheme_takes_nothing(config):
    found = verify(config, by.github().raw, NOW, KNOWN)
    assert found == Rejected("unsupported")
    assert found.status == 403


def test_no_more_than_four_secrets_are_tried():
    config = replace(hmac_config(), secret=("new", "old", "a", "b", "c"))
    assert verify(config, by.hmac_sender().raw, NOW, KNOWN) == Rejected("misconfigured")


def test_what_is_known_is_not_shown():
    assert SECRET not in repr(KNOWN)


# ---------------------------------------------------------------------------- replay


@pytest.mark.parametrize("name", list(by.senders()))
def test_the_replay_key_is_what_was_signed(name):
    one = by.senders()[name]
    found = one.verdict()
    if one.name in {"github", "shopify"} or name == "hmac_sha256":
        assert found.replay_key == hashlib.sha256(BODY).hexdigest()
    if not one.covers_body:
        assert (found.replay_key, found.replay_window_s, found.signed_time) == (None, 0, None)
    elif one.time_header or one.name == "stripe":
        assert (found.signed_time, found.replay_window_s) == (NOW, 600)
    else:
        assert (found.signed_time, found.replay_window_s) == (None, 604_800)


def test_headers_that_nobody_signed_change_no_replay_key():
    one = by.github()
    other = by.with_header(one.raw, "x-github-delivery", b"another")
    first, second = one.verdict(), one.verdict(other)
    assert (first.id, second.id) == ("gh-1", "another")
    assert first.replay_key == second.replay_key
    none = by.doubled(one.raw, "x-github-delivery")
    assert one.verdict(none).id is None


def test_a_time_that_nobody_signed_is_checked_but_limits_no_memory():
    config = hmac_config(timestamp=Timestamp(header="x-time", tolerance_secs=60))
    raw = by.hmac_sender().raw
    found = verify(config, raw, NOW, KNOWN)
    assert (found.signed_time, found.replay_window_s) == (None, 604_800)
    assert verify(config, raw, NOW + 61, KNOWN) == Rejected("stale_timestamp")
    gone = by.with_header(raw, "x-time", None)
    assert verify(config, gone, NOW, KNOWN) == Rejected("missing_timestamp")


@pytest.mark.parametrize("window", [0, -1, 2_592_001])
def test_the_memory_of_bodies_cannot_be_turned_off(window):
    known = Known(secrets=SECRETS, replay_window_s=window)
    assert verify(by.github().config, by.github().raw, NOW, known) == Rejected("misconfigured")


@pytest.mark.parametrize("tolerance", [0, 29, 901])
def test_a_tolerance_beyond_its_bounds_is_refused(tolerance):
    config = replace(by.stripe().config, tolerance_secs=tolerance)
    assert by.stripe().verdict(config=config) == Rejected("misconfigured")


@pytest.mark.parametrize("tolerance", [30, 900])
def test_the_tolerance_is_that_of_the_listener(tolerance):
    config = replace(by.stripe().config, tolerance_secs=tolerance)
    found = by.stripe().verdict(config=config, now=NOW + tolerance)
    assert found.replay_window_s == 2 * tolerance
    late = by.stripe().verdict(config=config, now=NOW + tolerance + 1)
    assert late == Rejected("stale_timestamp")


# ---------------------------------------------------------------------------- hmac_sha256


@pytest.mark.parametrize(
    ("prefix", "sent", "is_good"),
    [
        (None, "", True), (None, "sha256=", True), (None, "SHA256=", False), (None, "v1=", False),
        ("v1=", "v1=", True), ("v1=", "sha256=", True), ("v1=", "", False), ("v1=", "v2=", False),
        (None, "sha512=", False), (None, "sha256=sha256=", False),
    ],
)  # fmt: skip
def test_what_stands_before_a_signature(prefix, sent, is_good):
    raw = raw_of(x_signature=sent + digest(BODY).hex())
    found = verify(hmac_config(prefix=prefix), raw, NOW, KNOWN)
    assert isinstance(found, Verified) if is_good else found == Rejected("bad_signature")


def test_sha512_may_stand_before_its_own_signature():
    raw = raw_of(x_signature="sha512=" + digest(BODY, algorithm="sha512").hex())
    assert isinstance(verify(hmac_config(algorithm="sha512"), raw, NOW, KNOWN), Verified)
    assert verify(hmac_config(), raw, NOW, KNOWN) == Rejected("bad_signature")


def test_another_algorithm_or_encoding_is_refused():
    for algorithm in ("sha1", "sha512", "md5"):
        raw = raw_of(x_signature=digest(BODY, algorithm=algorithm).hex())
        assert verify(hmac_config(), raw, NOW, KNOWN) == Rejected("bad_signature")
    text = base64.b64encode(digest(BODY)).decode()
    assert verify(hmac_config(), raw_of(x_signature=text), NOW, KNOWN) == Rejected("bad_signature")


def test_the_case_of_hex_is_ignored_and_of_base64_is_not():
    raw = raw_of(x_signature=digest(BODY).hex().upper())
    assert isinstance(verify(hmac_config(), raw, NOW, KNOWN), Verified)
    raw = raw_of(x_signature=base64.b64encode(digest(BODY)).decode().swapcase())
    found = verify(hmac_config(encoding="base64"), raw, NOW, KNOWN)
    assert found == Rejected("bad_signature")


def test_base64url_may_be_padded_or_not():
    padded = base64.urlsafe_b64encode(digest(BODY)).decode()
    for text in (padded, padded.rstrip("=")):
        raw = raw_of(x_signature=text)
        assert isinstance(verify(hmac_config(encoding="base64url"), raw, NOW, KNOWN), Verified)


@pytest.mark.parametrize(
    ("template", "change"),
    [
        ("{method}:{body}", {"method": "PUT"}),
        ("{path}:{body}", {"path": "/ingress/others"}),
        ("{path}:{body}", {"path": "/ingress/order%73"}),
    ],
)
def test_a_template_covers_what_it_names(template, change):
    one = by.hmac_sender(template=template)
    assert isinstance(one.verdict(), Verified)
    assert one.verdict(replace(one.raw, **change)) == Rejected("bad_signature")


@pytest.mark.parametrize(("template", "header"), [("{header:X-Tenant}:{body}", "x-tenant"),
                                                  ("{id}:{body}", "x-id")])  # fmt: skip
def test_a_header_that_is_signed_cannot_be_changed_removed_or_doubled(template, header):
    one = by.hmac_sender(template=template)
    assert isinstance(one.verdict(), Verified)
    changed = by.with_header(one.raw, header, b"other")
    assert one.verdict(changed) == Rejected("bad_signature")
    assert one.verdict(by.with_header(one.raw, header, None)) == Rejected("bad_signature")
    assert one.verdict(by.doubled(one.raw, header)) == Rejected("ambiguous_signature")


def test_an_id_of_the_body_may_be_signed():
    raw = raw_of(x_signature=digest(b"evt_1." + BODY).hex())
    config = hmac_config(template="{id}.{body}", id=DeliveryId(body="id"))
    assert verify(config, raw, NOW, KNOWN).id == "evt_1"


def test_braces_of_the_body_are_only_text():
    body = b'{"a": "{timestamp}{body}{{ 7*7 }}"}'
    raw = raw_of(body, x_signature=digest(b"x" + body).hex())
    assert isinstance(verify(hmac_config(template="x{body}"), raw, NOW, KNOWN), Verified)


@pytest.mark.parametrize("template", ["{timestamp}", "{timestamp}{body}", "{body}{nothing}"])
def test_a_template_that_cannot_be_filled_takes_nothing(template):
    found = verify(hmac_config(template=template), by.hmac_sender().raw, NOW, KNOWN)
    assert found == Rejected("misconfigured")


# ---------------------------------------------------------------------------- providers


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("v1={made}", "missing_timestamp"), ("t=,v1={made}", "missing_timestamp"),
        ("t={now}", "missing_signature"), ("t={now},v0={made}", "missing_signature"),
        ("t={now},t={now},v1={made}", "ambiguous_signature"), ("{made}", "missing_signature"),
        ("t={now},v1=", "bad_signature"), ("t={later},v1={made}", "bad_signature"),
    ],
)  # fmt: skip
def test_a_header_of_stripe_that_is_not_whole(text, reason):
    made = digest(b"%d." % NOW + BODY).hex()
    raw = raw_of(stripe_signature=text.format(made=made, now=NOW, later=NOW + 1))
    config = StripeVerify(type="stripe", secret=("new",))
    assert verify(config, raw, NOW, KNOWN) == Rejected(reason)


def test_a_header_with_too_many_signatures_is_refused():
    one = by.stripe()
    value = one.raw.one("stripe-signature") + b",v1=0" * 20
    assert one.verdict(by.with_header(one.raw, "stripe-signature", value)) == Rejected(
        "bad_signature"
    )
    one = by.standard()
    value = one.raw.one("webhook-signature") + b" v1,0" * 20
    found = one.verdict(by.with_header(one.raw, "webhook-signature", value))
    assert found == Rejected("bad_signature")


@pytest.mark.parametrize("prefix", ["", "v0", "v1=", "sha256="])
def test_slack_and_github_sign_under_their_own_prefix(prefix):
    one = by.slack()
    made = one.raw.one("x-slack-signature").removeprefix(b"v0=")
    raw = by.with_header(one.raw, "x-slack-signature", prefix.encode() + made)
    assert one.verdict(raw) == Rejected("bad_signature")
    raw = raw_of(x_hub_signature_256=prefix.replace("sha256", "sha1") + digest(BODY).hex())
    assert by.github().verdict(raw) == Rejected("bad_signature")


@pytest.mark.parametrize("prefix", ["webhook", "svix"])
def test_an_id_that_is_signed_cannot_be_changed_removed_or_doubled(prefix):
    one, name = by.standard(prefix), f"{prefix}-id"
    assert one.verdict(by.with_header(one.raw, name, b"msg_2")) == Rejected("bad_signature")
    assert one.verdict(by.with_header(one.raw, name, None)) == Rejected("missing_signature")
    assert one.verdict(by.doubled(one.raw, name)) == Rejected("ambiguous_signature")


def test_a_signature_of_one_version_is_none_of_the_other():
    for version, other in (("v1", "v1a"), ("v1a", "v1")):
        one = by.standard(version=version)
        value = one.raw.one("webhook-signature").split()[-1].replace(
            version.encode() + b",", other.encode() + b","
        )  # fmt: skip
        found = one.verdict(by.with_header(one.raw, "webhook-signature", value))
        assert found == Rejected("bad_signature")


@pytest.mark.parametrize("secret", ["whsec_!", "whsec_", "whsk_AAAA", "whpk_AAAA", "plain text"])
def test_what_is_no_secret_of_standard_webhooks_serves_nobody(secret):
    config = StandardVerify(type="standard_webhooks", secret=("a",))
    found = verify(config, by.standard().raw, NOW, Known(secrets={"a": {"value": secret}}))
    assert found == Rejected("misconfigured")


def test_ids_come_from_where_the_provider_writes_them():
    body = b'{"id": 42, "event_id": null}'
    assert by.slack(body=body).verdict().id is None
    assert by.slack(body=b"no json").verdict().id is None
    assert by.github(b"[1]").verdict().id == "gh-1"


# ---------------------------------------------------------------------------- Ed25519


@pytest.mark.parametrize(
    "text",
    [
        by.PUBLIC.hex(), by.PUBLIC.hex().upper(), by.b64(by.PUBLIC), "whpk_" + by.b64(by.PUBLIC),
        base64.urlsafe_b64encode(by.PUBLIC).decode().rstrip("="),
        "-----BEGIN PUBLIC KEY-----\n"
        + by.b64(bytes.fromhex("302a300506032b6570032100") + by.PUBLIC)
        + "\n-----END PUBLIC KEY-----\n",
    ],
    ids=["hex", "upper", "base64", "whpk", "url", "pem"],
)  # fmt: skip
def test_a_public_key_may_be_written_in_many_ways(text):
    one = by.ed25519()
    assert isinstance(one.verdict(secrets={"public": {"public_key": text}}), Verified)


@pytest.mark.parametrize("text", ["", "x", "ab" * 31, "-----BEGIN PUBLIC KEY-----", "é" * 32])
def test_what_is_no_public_key_is_told(text):
    with pytest.raises(ValueError, match="no public key"):
        ed25519.public_key_of(text)


def test_a_key_of_another_kind_is_no_public_key():
    pem = by.issuer("ES256").key.as_pem(private=False).decode()
    with pytest.raises(ValueError, match="Ed25519"):
        ed25519.public_key_of(pem)


def test_a_signature_of_another_length_is_none():
    assert not ed25519.verify(by.PUBLIC, b"x" * 63, b"")
    assert not ed25519.verify(by.PUBLIC[:-1], b"x" * 64, b"")
    config = Ed25519Verify(type="ed25519", public_key=("public",))
    raw = raw_of(x_signature=by.PRIVATE.sign(BODY).hex())
    assert isinstance(verify(config, raw, NOW, KNOWN), Verified)
    assert verify(config, raw_of(x_signature="zz"), NOW, KNOWN) == Rejected("bad_signature")


# ---------------------------------------------------------------------------- shared words


def test_a_bearer_may_come_in_a_header_of_its_own():
    config = BearerVerify(type="bearer", header="x-gitlab-token", secret=("new",))
    for text in (SECRET, f"Bearer {SECRET}"):
        assert isinstance(verify(config, raw_of(x_gitlab_token=text), NOW, KNOWN), Verified)
    found = verify(config, raw_of(authorization=f"Bearer {SECRET}"), NOW, KNOWN)
    assert found == Rejected("missing_token")


@pytest.mark.parametrize("text", [SECRET, "Bearer", "Bearer ", f"Basic {SECRET}", "Bearer x y"])
def test_what_is_no_bearer_is_refused(text):
    assert by.bearer().verdict(raw_of(authorization=text)) == Rejected("bad_token")


@pytest.mark.parametrize(
    "text",
    [
        "ada",
        f"ada:{SECRET}x",
        f"eve:{SECRET}",
        f":{SECRET}",
        "ada:",
        f"{SECRET}:ada",
        f"ada{SECRET}",
    ],
)
def test_a_user_or_a_password_that_is_wrong_is_refused(text):
    raw = raw_of(authorization="Basic " + by.b64(text.encode()))
    assert by.basic().verdict(raw) == Rejected("bad_token")


@pytest.mark.parametrize("word", ["Bearer ", "", "Basic  !", "Basic !!"])
def test_what_is_no_basic_is_refused(word):
    raw = raw_of(authorization=word + by.b64(f"ada:{SECRET}".encode()))
    assert by.basic().verdict(raw) == Rejected("bad_token")


def api_key(**more):
    return ApiKeyVerify(type="api_key", secret=("new",), query="key", **more)


def test_a_key_in_the_query_counts_only_where_that_is_allowed():
    raw = raw_of(query=b"a=1&key=" + SECRET.encode())
    assert isinstance(verify(api_key(allow_query=True), raw, NOW, KNOWN), Verified)
    assert verify(api_key(), raw, NOW, KNOWN) == Rejected("missing_token")


@pytest.mark.parametrize(
    ("query", "headers", "reason"),
    [
        (b"key=x", {}, "bad_token"), (b"key=", {}, "missing_token"), (b"", {}, "missing_token"),
        (b"key=%s&key=%s", {}, "ambiguous_signature"), (b"key=%s&key=x", {}, "ambiguous_signature"),
        (b"key=%s", {"x_api_key": SECRET}, "ambiguous_signature"),
        (b"key=%%ff%s", {}, "bad_token"), (b"KEY=%s", {}, "missing_token"),
        (b"key=%s" + b"&a=1" * MOST_PARAMETERS, {}, "missing_token"),
    ],
)  # fmt: skip
def test_a_key_in_the_query_comes_once_and_is_right(query, headers, reason):
    filled = query.replace(b"%s", SECRET.encode()).replace(b"%%", b"%")
    found = verify(api_key(allow_query=True), raw_of(query=filled, **headers), NOW, KNOWN)
    assert found == Rejected(reason)


# ---------------------------------------------------------------------------- the request


def test_a_request_is_looked_at_as_it_came():
    raw = Raw(
        method="POST", path="/", query=b"a=1&a=2&b=", headers=((b"X-A", b"1"), (b"x-a", b"2"))
    )
    assert raw.every("x-a") == [b"1", b"2"]
    for twice in (lambda: raw.one("x-a"), lambda: raw.parameter("a")):
        with pytest.raises(Doubled):
            twice()
    assert (raw.one("x-b"), raw.parameter("b"), raw.parameter("c")) == (None, "", None)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.b", "x"), ("a.n", "7"), ("l.1", "two"), ("l.9", None), ("l.x", None), ("a", None),
        ("t", None), ("e", None), ("gone.more", None), ("f", None),
        ("l.99999999999999999999", None),
    ],
)  # fmt: skip
def test_a_path_leads_to_a_text_or_a_whole_number(path, text):
    document = json_of(
        b'{"a": {"b": "x", "n": 7}, "l": ["one", "two"], "t": true, "e": "", "f": 1.5}'
    )
    assert text_at(document, path) == text


def test_what_is_no_json_is_none():
    for body in (b"", b"{", b"\xff", b"[" * 100_000):
        assert json_of(body) is None
