"""The word of a gateway: who signed it, for whom, and how long it counts."""

from __future__ import annotations

import base64
import hmac
import json
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noetl.secrets.signed import LEEWAY_S, LIFE_S, MOST_CHARS, BadIdentity, key_of, sign, verified

KEY = key_of("the internal token")
OTHER = key_of("the one before")
NOW = 1_770_000_000.0
CLAIMS = {"sub": "7", "roles": ["viewer"], "tenant": "default", "sid": "9"}


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def made(head: dict, body: object, key: bytes = KEY) -> str:
    told = (
        f"{b64(json.dumps(head, separators=(',', ':')).encode())}.{b64(json.dumps(body).encode())}"
    )
    return f"{told}.{b64(hmac.digest(key, told.encode(), sha256))}"


HEAD = {"alg": "HS256", "typ": "JWT"}
WHOLE = {
    **CLAIMS, "iss": "noetl-gateway", "aud": "noetl-server", "iat": int(NOW), "exp": int(NOW) + 60,
    "jti": "j",
}  # fmt: skip


def test_the_key_is_that_of_hkdf_with_sha_256() -> None:
    for token in ("x", "the internal token", "é" * 300):
        known = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"identity-v1")
        assert key_of(token) == known.derive(token.encode())
    assert KEY != OTHER


def test_a_word_is_read_by_whoever_has_its_key() -> None:
    word = sign(CLAIMS, KEY, NOW, "j-1")
    assert verified(word, [OTHER, KEY], NOW) == {
        **CLAIMS, "iss": "noetl-gateway", "aud": "noetl-server", "iat": int(NOW),
        "exp": int(NOW) + LIFE_S, "jti": "j-1",
    }  # fmt: skip
    assert made(HEAD, WHOLE).count(".") == 2
    assert verified(made(HEAD, WHOLE), [KEY], NOW)["sub"] == "7"


@pytest.mark.parametrize("late_s", [-LEEWAY_S, 0, LIFE_S, LIFE_S + LEEWAY_S - 1])
def test_a_word_counts_for_a_minute_and_a_little(late_s) -> None:
    assert verified(sign(CLAIMS, KEY, NOW, "j"), [KEY], NOW + late_s)["sub"] == "7"


@pytest.mark.parametrize("late_s", [-LEEWAY_S - 1, LIFE_S + LEEWAY_S, 3600])
def test_a_word_of_another_time_is_refused(late_s) -> None:
    with pytest.raises(BadIdentity, match="does not count now"):
        verified(sign(CLAIMS, KEY, NOW, "j"), [KEY], NOW + late_s)


def without(name: str) -> dict:
    return {key: value for key, value in WHOLE.items() if key != name}


FORGED = {
    "nothing": "",
    "no word": "abc",
    "two parts": "a.b",
    "four parts": sign(CLAIMS, KEY, NOW, "j") + ".x",
    "not ascii": "é.é.é",
    "too long": "a" * (MOST_CHARS + 1),
    "another key": sign(CLAIMS, OTHER, NOW, "j"),
    "alg none": made({"alg": "none", "typ": "JWT"}, WHOLE),
    "alg HS512": made({"alg": "HS512", "typ": "JWT"}, WHOLE),
    "a key of its own": made({**HEAD, "kid": "x"}, WHOLE),
    "no signature": made(HEAD, WHOLE).rpartition(".")[0] + ".",
    "not base64": made(HEAD, WHOLE)[:-3] + "***",
    "another body": made(HEAD, WHOLE).split(".")[0] + "." + b64(b"{}") + "." + "A" * 43,
    "no object": made(HEAD, [1]),
    "another issuer": made(HEAD, {**WHOLE, "iss": "me"}),
    "another server": made(HEAD, {**WHOLE, "aud": "noetl-gateway"}),
    "several servers": made(HEAD, {**WHOLE, "aud": ["noetl-server"]}),
    "no beginning": made(HEAD, without("iat")),
    "no end": made(HEAD, without("exp")),
    "an end in words": made(HEAD, {**WHOLE, "exp": "tomorrow"}),
    "an hour long": made(HEAD, {**WHOLE, "iat": int(NOW) - 3600, "exp": int(NOW) + 3600}),
}


@pytest.mark.parametrize("word", FORGED.values(), ids=FORGED.keys())
def test_what_no_gateway_has_signed_is_refused(word) -> None:
    with pytest.raises(BadIdentity) as refused:
        verified(word, [KEY], NOW)
    assert (refused.value.status, refused.value.code) == (401, "bad_identity")
    assert word == "" or word not in str(refused.value)


def test_without_a_key_nothing_is_believed() -> None:
    with pytest.raises(BadIdentity):
        verified(sign(CLAIMS, KEY, NOW, "j"), [], NOW)


def test_a_body_that_is_no_text_is_refused() -> None:
    head = b64(b'{"alg":"HS256","typ":"JWT"}')
    told = f"{head}.{b64(bytes([255, 254]))}"
    word = f"{told}.{b64(hmac.digest(KEY, told.encode(), sha256))}"
    with pytest.raises(BadIdentity, match="not JSON"):
        verified(word, [KEY], NOW)
