"""Every verifier: what is signed passes, each change is refused with its reason, nothing leaks."""

from __future__ import annotations

import hmac
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noetl.dsl.subscription.verify import VERIFIERS
from noetl.gateway.ingress.verify.proof import STATUS
from noetl.gateway.ingress.verify.verdict import ISSUED, SIGNED, Rejected, Verified
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.senders import NOW, doubled, senders, with_header

EVERY = senders()
COVERING = {name: one for name, one in EVERY.items() if one.covers_body}
STAMPED = {name: one for name, one in EVERY.items() if one.time_header or one.name == "stripe"}
SHARING = {
    name: one
    for name, one in EVERY.items()
    if one.keys is None and "ed25519" not in name and "v1a" not in name
}
"""Those whose proof is a secret that both sides know, or is made with one."""
_LISTED = ("standard_webhooks", "svix")
NAMES = pytest.mark.parametrize("name", list(EVERY))
COVERS = pytest.mark.parametrize("name", list(COVERING))
STAMPS = pytest.mark.parametrize("name", list(STAMPED))


def sent(name, at):
    """The same sender, at another time."""
    makers = {
        "hmac_sha256-template": lambda: by.hmac_sender(
            template="v1:{timestamp}:{id}:{method}:{path}:{header:X-Tenant}:{body}",
            prefix="v1=", sent=at,
        ),
        "stripe": lambda: by.stripe(at),
        "slack": lambda: by.slack(at),
        "standard_webhooks": lambda: by.standard(sent=at),
        "standard_webhooks-v1a": lambda: by.standard(version="v1a", sent=at),
        "svix": lambda: by.standard("svix", sent=at),
        "ed25519": lambda: by.ed25519(at),
        "ed25519-base64": lambda: by.ed25519(at, "base64"),
    }  # fmt: skip
    return makers[name]()


def test_every_scheme_of_documents_has_a_verifier_and_is_tested_here():
    assert {*SIGNED, *ISSUED} == set(VERIFIERS)
    assert {one.name for one in EVERY.values()} == set(VERIFIERS)


@NAMES
def test_what_is_signed_passes(name):
    found = EVERY[name].verdict()
    assert isinstance(found, Verified)
    assert (found.scheme, found.id) == (EVERY[name].name, EVERY[name].id)
    assert found.raw is EVERY[name].raw


@NAMES
def test_the_name_of_a_header_may_be_in_any_case(name):
    raw = EVERY[name].raw
    shouted = tuple((key.upper(), value) for key, value in raw.headers)
    assert isinstance(EVERY[name].verdict(replace(raw, headers=shouted)), Verified)


@NAMES
def test_nothing_to_prove_it_is_refused(name):
    one = EVERY[name]
    assert one.verdict(with_header(one.raw, one.header, None)) == Rejected(one.missing)
    assert one.verdict(with_header(one.raw, one.header, b"")) == Rejected(one.missing)


@NAMES
@pytest.mark.parametrize("second", [None, b"", b"other"])
def test_two_headers_to_prove_it_are_refused_whatever_they_say(name, second):
    one = EVERY[name]
    assert one.verdict(doubled(one.raw, one.header, second)) == Rejected("ambiguous_signature")


@NAMES
def test_each_changed_byte_of_the_proof_is_refused(name):
    """Flip one bit in each of its last bytes, one after another."""
    one = EVERY[name]
    value = one.raw.one(one.header)
    for index in range(len(value) - 24, len(value)):
        changed = bytes([*value[:index], value[index] ^ 1, *value[index + 1 :]])
        found = one.verdict(with_header(one.raw, one.header, changed))
        assert isinstance(found, Rejected), (index, changed)
        assert found.reason in {one.bad, "oidc_malformed"}


@NAMES
@pytest.mark.parametrize("cut", [1, 8, 40])
def test_a_proof_that_is_cut_is_refused(name, cut):
    one = EVERY[name]
    found = one.verdict(with_header(one.raw, one.header, one.raw.one(one.header)[:-cut]))
    assert isinstance(found, Rejected)
    assert found.status == 401


@COVERS
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("one byte", lambda body: body.replace(b"12", b"13")),
        ("cut", lambda body: body[:-1]),
        ("longer", lambda body: body + b" "),
        ("newline", lambda body: body + b"\n"),
        ("re-encoded", lambda body: body.decode().encode("latin-1")),
        ("escaped", lambda body: body.replace("é".encode(), b"\\u00e9")),
        ("re-ordered", lambda body: b'{"event_id": "Ev1", "id": "evt_1"' + body[32:]),
        ("re-written", lambda body: body.replace(b": ", b":")),
        ("empty", lambda _: b""),
        ("twice", lambda body: body + body),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_changed_body_is_refused(name, what, change):
    one = COVERING[name]
    body = change(one.raw.body)
    assert body != one.raw.body, what
    assert one.verdict(replace(one.raw, body=body)) == Rejected("bad_signature")


@STAMPS
@pytest.mark.parametrize("age", [-301, 301, 3600, -86_400])
def test_too_old_or_too_early_is_refused(name, age):
    assert sent(name, NOW - age).verdict() == Rejected("stale_timestamp")


@STAMPS
@pytest.mark.parametrize("age", [-300, -299, 0, 299, 300])
def test_within_the_tolerance_passes(name, age):
    found = sent(name, NOW - age).verdict()
    assert isinstance(found, Verified)
    assert found.signed_time == NOW - age


@STAMPS
def test_the_same_delivery_sent_later_is_stale(name):
    assert isinstance(EVERY[name].verdict(now=NOW + 1), Verified)
    assert EVERY[name].verdict(now=NOW + 301) == Rejected("stale_timestamp")


@pytest.mark.parametrize("name", [name for name in STAMPED if name != "stripe"])
@pytest.mark.parametrize(
    "value", [None, b"", b"soon", b"-1", b"1e9", b"1700000000.5", b" 1", b"9" * 13]
)
def test_no_time_is_refused(name, value):
    one = EVERY[name]
    found = one.verdict(with_header(one.raw, one.time_header, value))
    assert found == Rejected("missing_timestamp")


@pytest.mark.parametrize("name", [name for name in STAMPED if name != "stripe"])
def test_another_time_is_another_signature(name):
    one = EVERY[name]
    moved = with_header(one.raw, one.time_header, str(NOW + 1).encode())
    assert one.verdict(moved) == Rejected("bad_signature")
    again = doubled(one.raw, one.time_header)
    assert one.verdict(again) == Rejected("ambiguous_signature")


@pytest.mark.parametrize("name", [name for name, one in EVERY.items() if one.keys is None])
def test_secrets_rotate_and_the_one_that_is_gone_fails(name):
    one = EVERY[name]
    fields = ("secret", "public_key", "password", "key_")
    field = next(field for field in fields if hasattr(one.config, field))
    swapped = replace(one.config, **{field: (*reversed(getattr(one.config, field)), "missing")})
    assert isinstance(one.verdict(config=swapped), Verified)
    other = {alias: {"value": by.WHSEC[:-4] + "AAAA"} for alias in by.SECRETS}
    other["public"] = {"value": by.b64(bytes(range(32)))}
    other["new"] = {"value": "somebody else's secret, long enough."}
    other["user"] = {"username": "ada", "password": "x"}
    wrong = one.verdict(secrets=other)
    assert wrong == Rejected(one.bad)


@NAMES
@pytest.mark.parametrize("fields", [None, {}, {"value": ""}, {"value": None}, {"other": "x"}])
def test_a_listener_without_its_secret_takes_nothing(name, fields):
    one = EVERY[name]
    secrets = {} if fields is None else dict.fromkeys(by.SECRETS, fields)
    found = one.verdict(secrets=secrets)
    if one.keys is not None:
        assert isinstance(found, Verified)  # its issuer holds the key
    else:
        assert found == Rejected("misconfigured")
        assert found.status == 403


@NAMES
def test_nothing_secret_is_shown(name):
    one = EVERY[name]
    value = one.raw.one(one.header)
    shown = [repr(one.raw), repr(one.verdict())]
    for changed in (None, b"", value[:-2], value[::-1], value + b"x"):
        found = one.verdict(with_header(one.raw, one.header, changed))
        shown += [repr(found), found.reason]
    told = "\n".join(shown)
    for secret in (by.SECRET, by.OLD, by.WHSEC, value.decode(), value.decode()[-20:]):
        assert secret not in told
    assert "caf" not in told


@pytest.mark.parametrize("name", [*SHARING])
def test_secrets_are_compared_in_constant_time(name, monkeypatch):
    compared = []

    def compare(first, second):
        compared.append((bytes(first), bytes(second)))
        return real(first, second)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    one = EVERY[name]
    assert isinstance(one.verdict(), Verified)
    often = len(compared)
    assert often >= 2  # with every secret, also after one that was right
    value = one.raw.one(one.header)
    wrong = value[:-9] + (b"1" if value[-9:-8] == b"0" else b"0") + value[-8:]
    one.verdict(with_header(one.raw, one.header, wrong))
    assert len(compared) == 2 * often


@NAMES
@given(data=st.data())
def test_a_random_change_never_verifies(name, data):
    """Any other body, and any other proof that does not mean the same, is refused."""
    one = EVERY[name]
    raw = one.raw
    if one.covers_body and data.draw(st.booleans()):
        body = data.draw(_changed(raw.body))
        assume(body != raw.body)
        found = one.verdict(replace(raw, body=body))
    else:
        value = raw.one(one.header)
        changed = data.draw(_changed(value))
        assume(not _means_the_same(one, value, changed))
        found = one.verdict(with_header(raw, one.header, changed))
    assert isinstance(found, Rejected)
    assert found.reason in STATUS


def _changed(value):
    """Bytes that were changed, taken away, put in or moved."""
    at = st.integers(0, max(0, len(value) - 1))
    return st.one_of(
        st.tuples(at, st.integers(0, 255)).map(
            lambda one: value[: one[0]] + bytes([one[1]]) + value[one[0] + 1 :]
        ),
        st.tuples(at, st.integers(1, 8)).map(
            lambda one: value[: one[0]] + value[one[0] + one[1] :]
        ),
        st.tuples(at, st.binary(min_size=1, max_size=8)).map(
            lambda one: value[: one[0]] + one[1] + value[one[0] :]
        ),
        at.map(lambda one: value[one:] + value[:one]),
        st.binary(max_size=80),
    )


def _means_the_same(one, value, changed):
    """Whether a header says what it said: case of hex and schemes, spaces, padding, the order."""
    if one.name in _LISTED:
        return value.split()[-1] in changed.split()
    if one.name == "stripe":
        parts, told = (
            [part.strip().lower() for part in text.split(b",")] for text in (changed, value)
        )
        return told[-1] in parts and parts.count(told[0]) == 1
    if one.header == "authorization":
        (word, _, rest), (scheme, _, proof) = changed.partition(b" "), value.partition(b" ")
        return (word.lower(), rest.strip()) == (scheme.lower(), proof)
    if getattr(one.config, "encoding", "hex") == "base64url":
        return changed.rstrip(b"=") == value
    return changed.lower() == value.lower() if _is_hex(value) else changed == value


def _is_hex(value):
    return set(value.split(b"=")[-1].lower()) <= set(b"0123456789abcdef")


def test_every_reason_has_its_status():
    by_status = {}
    for reason, status in STATUS.items():
        by_status.setdefault(status, set()).add(reason)
        assert Rejected(reason).status == status
    assert by_status == {
        401: {
            "missing_signature", "bad_signature", "ambiguous_signature", "missing_token",
            "bad_token", "stale_timestamp", "missing_timestamp", "oidc_malformed",
            "oidc_unknown_kid", "oidc_expired", "oidc_bad_signature", "oidc_invalid",
            "oidc_bad_issuer",
        },
        403: {
            "oidc_wrong_audience", "oidc_wrong_sa", "oidc_unverified_email",
            "oidc_claim_mismatch", "misconfigured", "unsupported",
        },
        503: {"jwks_unavailable"},
    }  # fmt: skip
    with pytest.raises(ValueError, match="no such reason"):
        Rejected("a reason of my own")
