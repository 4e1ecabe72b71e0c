"""A record opens in its own row, with its own key, unchanged; anything else is an error."""

import base64
import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.clock import SystemClock
from noetl.secrets.kek.base import (
    CannotUnwrap,
    CannotWrap,
    KekUnavailable,
    NotARecord,
    RecordDamaged,
)
from noetl.secrets.kek.local import BadKey, LocalKek, make_key
from noetl.secrets.wallet import KNOWN_S, MOST_KNOWN, Wallet, about, version_of

KEY, OTHER = make_key(), make_key()
HERE = about("credential", "default", "42")
SECRET = b"canary-wallet-0815"


class Clock(SystemClock):
    """A clock that is told the time."""

    def __init__(self):
        self.at = 1000.0

    def monotonic(self):
        return self.at


class Kms:
    """A key service that may be down, counting what it was asked."""

    provider = "local"

    def __init__(self, keys=KEY):
        self.inner = LocalKek(keys)
        self.is_down = False
        self.asked = []

    async def _ask(self, what):
        self.asked.append(what)
        if self.is_down:
            raise KekUnavailable("the key service does not answer")

    async def current(self):
        await self._ask("current")
        return await self.inner.current()

    async def wrap(self, dek):
        await self._ask("wrap")
        return await self.inner.wrap(dek)

    async def unwrap(self, wrapped):
        await self._ask("unwrap")
        return await self.inner.unwrap(wrapped)


def wallet_of(keys=KEY):
    return Wallet(LocalKek(keys), Clock())


def changed(record, **parts):
    return json.dumps({**json.loads(record), **parts})


def with_dek(record, **parts):
    return changed(record, dek={**json.loads(record)["dek"], **parts})


@given(data=st.binary(max_size=500), place=st.text(max_size=50))
async def test_what_was_sealed_opens(data, place):
    record = await wallet_of().seal(data, place)
    assert await wallet_of().open(record, place) == data


async def test_a_record_has_the_form_of_the_contract():
    found = json.loads(await wallet_of().seal(SECRET, HERE))
    assert HERE == "noetl|credential|default|42"
    assert list(found) == ["v", "alg", "ct", "dek"]
    assert (found["v"], found["alg"]) == (1, "AES-256-GCM")
    assert len(base64.b64decode(found["ct"])) == 12 + len(SECRET) + 16
    assert list(found["dek"]) == ["p", "kid", "kv", "ct"]
    assert (found["dek"]["p"], found["dek"]["kv"]) == ("local", "1")
    assert version_of(json.dumps(found)) == ("local", found["dek"]["kid"], "1")


async def test_a_record_opens_with_nothing_but_the_contract():
    """Another program, written from the contract alone, opens the ciphertext with the key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only here

    record = await wallet_of().seal(SECRET, HERE)
    found = json.loads(record)
    dek = await LocalKek(KEY).unwrap(wrapped_of(found))
    raw = base64.b64decode(found["ct"])
    assert AESGCM(dek).decrypt(raw[:12], raw[12:], HERE.encode()) == SECRET


def wrapped_of(found):
    from noetl.secrets.kek.base import Wrapped  # noqa: PLC0415 - only here

    dek = found["dek"]
    return Wrapped(dek["p"], dek["kid"], dek["kv"], base64.b64decode(dek["ct"]))


async def test_two_records_of_one_secret_have_nothing_in_common():
    one, two = [json.loads(await wallet_of().seal(SECRET, HERE)) for _ in range(2)]
    assert one["ct"] != two["ct"]
    assert one["dek"]["ct"] != two["dek"]["ct"]
    assert base64.b64decode(one["ct"])[:12] != base64.b64decode(two["ct"])[:12]


async def test_every_flipped_bit_is_found():
    record = await wallet_of().seal(b"s", HERE)
    found = json.loads(record)
    for text, write in ((found["ct"], changed), (found["dek"]["ct"], with_dek)):
        raw = base64.b64decode(text)
        for bit in range(len(raw) * 8):
            data = bytearray(raw)
            data[bit // 8] ^= 1 << (bit % 8)
            with pytest.raises(RecordDamaged):
                await wallet_of().open(write(record, ct=base64.b64encode(data).decode()), HERE)


async def test_a_changed_key_is_found_although_the_right_one_is_known():
    wallet = wallet_of(f"{KEY},{OTHER}")
    record = await wallet.seal(SECRET, HERE)
    other = (await LocalKek(OTHER).current())[0]
    for part in ({"kid": other}, {"kv": "2"}, {"p": "vault"}):
        with pytest.raises(CannotUnwrap):
            await wallet.open(with_dek(record, **part), HERE)


@pytest.mark.parametrize(
    "place",
    [
        about("credential", "default", "43"),
        about("credential", "acme", "42"),
        about("keychain", "default", "42"),
        "",
    ],
)
async def test_a_record_copied_to_another_row_does_not_open(place):
    wallet = wallet_of()
    record = await wallet.seal(SECRET, HERE)
    with pytest.raises(RecordDamaged) as caught:
        await wallet.open(record, place)
    assert "canary" not in str(caught.value)


def test_two_places_are_never_one_text():
    assert about("t", "a|b", "c") != about("t", "a", "b|c")
    assert about("t", "a%7Cb", "c") != about("t", "a|b", "c")


RECORD = (
    '{"v":1,"alg":"AES-256-GCM","ct":"AAAA","dek":{"p":"local","kid":"k","kv":"1","ct":"AAAA"}}'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "canary" * 3,
        '{"password": "canary-plain-text"}',
        "[]",
        "null",
        "{",
        changed(RECORD, v=2),
        changed(RECORD, v="1"),
        changed(RECORD, alg="none"),
        changed(RECORD, ct="canary!"),
        changed(RECORD, ct="AAA"),
        changed(RECORD, ct="AAB="),
        changed(RECORD, ct="\ud800"),
        changed(RECORD, more="canary"),
        with_dek(RECORD, ct="canary!"),
        with_dek(RECORD, more=1),
        changed(RECORD, dek="AAAA"),
        "\x00",
    ],
)
async def test_a_value_that_is_no_record_is_an_error(text):
    wallet = wallet_of()
    for call in (lambda: wallet.open(text, HERE), lambda: wallet.rewrap(text)):
        with pytest.raises(NotARecord) as caught:
            await call()
        assert caught.value.failure == "parse_error"
        assert "canary" not in f"{caught.value} {caught.value.hint}"
        assert "canary" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(NotARecord):
        version_of(text)


async def test_a_ciphertext_that_is_too_short_does_not_open():
    wallet = wallet_of()
    record = await wallet.seal(SECRET, HERE)
    with pytest.raises(RecordDamaged):
        await wallet.open(changed(record, ct="AAAA"), HERE)


async def test_the_wrong_key_does_not_open():
    record = await wallet_of().seal(SECRET, HERE)
    with pytest.raises(CannotUnwrap) as caught:
        await wallet_of(OTHER).open(record, HERE)
    assert "NOETL_ENCRYPTION_KEY" in caught.value.hint


@pytest.mark.parametrize(
    "keys",
    ["", ",", "mine", f"{KEY},", f"{KEY},mine", base64.b64encode(b"x" * 31).decode(), KEY[:-1]],
    ids=range(7),
)
def test_what_is_no_key_is_refused_by_the_name_of_its_variable(keys):
    with pytest.raises(BadKey) as caught:
        LocalKek(keys)
    assert "NOETL_ENCRYPTION_KEY" in caught.value.message
    assert "base64" in caught.value.hint
    assert KEY not in str(caught.value)


def test_keys_are_not_shown():
    assert KEY not in f"{LocalKek(KEY)!r}"


async def test_two_keys_in_rotation():
    old = await wallet_of(KEY).seal(SECRET, HERE)
    both = wallet_of(f" {OTHER} , {KEY} ")
    assert await both.open(old, HERE) == SECRET
    new = await both.rewrap(old)
    assert version_of(new) == await both.current()
    assert version_of(new) != version_of(old)
    assert await wallet_of(OTHER).open(new, HERE) == SECRET
    assert await both.rewrap(new) is None
    with pytest.raises(CannotUnwrap):
        await wallet_of(KEY).open(new, HERE)


async def test_rewrapping_leaves_the_ciphertext_as_it_is():
    old = await wallet_of(KEY).seal(SECRET, HERE)
    new = await wallet_of(f"{OTHER},{KEY}").rewrap(old)
    before, after = json.loads(old), json.loads(new)
    assert before.pop("dek") != after.pop("dek")
    assert before == after


async def test_a_rotation_says_the_current_key_once():
    kms = Kms(f"{OTHER},{KEY}")
    wallet = Wallet(kms, Clock())
    record = await wallet_of(KEY).seal(SECRET, HERE)
    current = await wallet.current()
    assert await wallet.rewrap(await wallet.rewrap(record, current), current) is None
    assert kms.asked == ["current", "unwrap", "wrap"]


async def test_each_failure_of_a_rotation_has_its_class():
    lost = await wallet_of(OTHER).seal(SECRET, HERE)
    with pytest.raises(CannotUnwrap) as caught:
        await wallet_of(KEY).rewrap(lost)
    assert caught.value.failure == "failed_unwrap"

    kms = Kms(f"{OTHER},{KEY}")
    kms.is_down = True
    wallet = Wallet(kms, Clock())
    old = await wallet_of(KEY).seal(SECRET, HERE)
    current = ("local", *await kms.inner.current())
    with pytest.raises(CannotUnwrap):
        await wallet.rewrap(old, current)
    kms.is_down = False
    await wallet.open(old, HERE)
    kms.is_down = True
    with pytest.raises(CannotWrap) as caught:
        await wallet.rewrap(old, current)
    assert caught.value.failure == "failed_wrap"
    with pytest.raises(CannotWrap):
        await wallet.rewrap(old)


async def test_known_records_open_while_the_key_service_is_down():
    kms, clock = Kms(), Clock()
    wallet = Wallet(kms, clock)
    sealed_here = await wallet.seal(SECRET, HERE)
    opened_here = await wallet_of().seal(SECRET, HERE)
    unknown = await wallet_of().seal(SECRET, HERE)
    assert await wallet.open(opened_here, HERE) == SECRET

    kms.is_down = True
    clock.at += KNOWN_S - 1
    assert await wallet.open(sealed_here, HERE) == SECRET
    assert await wallet.open(opened_here, HERE) == SECRET
    with pytest.raises(KekUnavailable) as caught:
        await wallet.open(unknown, HERE)
    assert (caught.value.code, caught.value.status) == ("kek_unavailable", 503)
    with pytest.raises(KekUnavailable):
        await wallet.seal(SECRET, HERE)

    clock.at += 1
    for record in (sealed_here, opened_here):
        with pytest.raises(KekUnavailable):
            await wallet.open(record, HERE)
    assert not wallet._known  # noqa: SLF001 - a key that has ended is not kept

    kms.is_down = False
    assert await wallet.open(unknown, HERE) == SECRET


async def test_reading_a_record_does_not_make_its_key_last_longer():
    kms, clock = Kms(), Clock()
    wallet = Wallet(kms, clock)
    record = await wallet.seal(SECRET, HERE)
    clock.at += KNOWN_S / 2
    await wallet.open(record, HERE)
    clock.at += KNOWN_S / 2
    await wallet.open(record, HERE)
    assert kms.asked == ["wrap", "unwrap"]


async def test_known_keys_are_bounded(monkeypatch):
    monkeypatch.setattr("noetl.secrets.wallet.MOST_KNOWN", 3)
    assert MOST_KNOWN == 10_000
    wallet = wallet_of()
    records = [await wallet.seal(SECRET, HERE) for _ in range(5)]
    assert len(wallet._known) == 3  # noqa: SLF001 - the bound itself
    assert [await wallet.open(record, HERE) for record in records] == [SECRET] * 5
