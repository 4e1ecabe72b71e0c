"""What is sealed to a process opens there alone, and for its purpose alone."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.secrets.sealed import (
    CannotOpen,
    InvalidPublicKey,
    KeyPair,
    Sealed,
    about_delivery,
    is_public_key,
    seal_to,
)

PAIR = KeyPair.make()
ABOUT = about_delivery("worker-1", "7", "warehouse")
SECRET = b"canary-sealed-4711"


def flipped(text, bit):
    data = bytearray(base64.b64decode(text))
    data[bit // 8] ^= 1 << (bit % 8)
    return base64.b64encode(data).decode()


@given(data=st.binary(max_size=2000), about=st.text(max_size=50))
def test_what_was_sealed_opens(data, about):
    assert PAIR.open(seal_to(PAIR.public, data, about), about) == data


def test_its_words_are_those_of_the_contract():
    sealed = seal_to(PAIR.public, SECRET, ABOUT)
    assert (sealed.alg, sealed.v) == ("x25519-hkdf-sha256-aes256gcm", 1)
    assert ABOUT == "x25519-hkdf-sha256-aes256gcm|1|worker-1|7|warehouse"
    assert len(base64.b64decode(sealed.eph_pub)) == 32
    assert len(base64.b64decode(PAIR.public)) == 32
    assert len(base64.b64decode(sealed.ciphertext)) == len(SECRET) + 16


def test_every_flipped_bit_is_found():
    sealed = seal_to(PAIR.public, SECRET, ABOUT)
    for field in ("eph_pub", "ciphertext"):
        text = getattr(sealed, field)
        for bit in range(len(base64.b64decode(text)) * 8):
            changed = msgspec.structs.replace(sealed, **{field: flipped(text, bit)})
            with pytest.raises(CannotOpen):
                PAIR.open(changed, ABOUT)


def test_only_the_receiver_opens_it():
    with pytest.raises(CannotOpen):
        KeyPair.make().open(seal_to(PAIR.public, SECRET, ABOUT), ABOUT)


@pytest.mark.parametrize(
    "other",
    [
        about_delivery("worker-2", "7", "warehouse"),
        about_delivery("worker-1", "8", "warehouse"),
        about_delivery("worker-1", "7", "lake"),
        "",
    ],
)
def test_another_purpose_does_not_open_it(other):
    with pytest.raises(CannotOpen):
        PAIR.open(seal_to(PAIR.public, SECRET, ABOUT), other)


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "x25519-hkdf-sha256-chacha20"},
        {"v": 2},
        {"eph_pub": ""},
        {"eph_pub": "no base64"},
        {"eph_pub": base64.b64encode(bytes(32)).decode()},
        {"eph_pub": base64.b64encode(b"\xff" * 32).decode()},
        {"ciphertext": ""},
        {"ciphertext": "AAAA"},
        {"ciphertext": "ü"},
    ],
)
def test_what_is_no_delivery_does_not_open(change):
    sealed = msgspec.structs.replace(seal_to(PAIR.public, SECRET, ABOUT), **change)
    with pytest.raises(CannotOpen):
        PAIR.open(sealed, ABOUT)


@pytest.mark.parametrize(
    "public",
    [
        "",
        "AAAA",
        "no base64",
        "A" * 43,
        PAIR.public + "\n",
        base64.b64encode(b"\xff" * 32).decode(),
    ],
    ids=range(6),
)
def test_what_is_no_public_key_is_refused(public):
    assert not is_public_key(public)
    with pytest.raises(InvalidPublicKey):
        seal_to(public, SECRET, ABOUT)


def test_a_key_that_any_secret_agrees_with_is_refused():
    with pytest.raises(InvalidPublicKey):
        seal_to(base64.b64encode(bytes(32)).decode(), SECRET, ABOUT)


def test_two_deliveries_of_one_secret_have_nothing_in_common():
    one, two = (seal_to(PAIR.public, SECRET, ABOUT) for _ in range(2))
    assert one.eph_pub != two.eph_pub
    assert one.ciphertext != two.ciphertext


def test_it_travels_as_json():
    sealed = seal_to(PAIR.public, SECRET, ABOUT)
    again = msgspec.json.decode(msgspec.json.encode(sealed), type=Sealed)
    assert PAIR.open(again, ABOUT) == SECRET
    assert is_public_key(PAIR.public)


def test_the_private_half_is_not_shown():
    private = PAIR._private.private_bytes_raw()  # noqa: SLF001 - what must not be shown
    shown = f"{PAIR!r} {PAIR}"
    assert base64.b64encode(private).decode() not in shown
    assert private.hex() not in shown
