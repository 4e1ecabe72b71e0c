"""What every key of keys does; a backend is the fixture `bench`."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from functools import cached_property

import pytest

from noetl.clock import SystemClock
from noetl.secrets.kek.base import CannotUnwrap, CannotWrap, KekUnavailable, Wrapped
from noetl.secrets.kek.choose import Access, kek_of
from noetl.secrets.kek.local import LocalKek, make_key
from noetl.secrets.wallet import KNOWN_S, Wallet, about, version_of
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.fakes.google import KMS_KEY, KMS_OTHER, Google
from tests.fakes.vault import TOKEN, TransitKey, Vault

DEK = b"canary-dek-0123456789abcdef-3141"
PLACE = about("credential", "default", "1")


class Clock(SystemClock):
    """The machine's clock, put forward."""

    ahead_s = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead_s


class Local:
    """Keys that the process was told."""

    provider = "local"

    def __init__(self):
        self.keys = [make_key()]

    @property
    def kek(self):
        return LocalKek(",".join(self.keys))

    @property
    def other(self):
        return LocalKek(make_key())

    def rotate(self):
        self.keys.insert(0, make_key())

    def retire(self):
        self.keys.pop()


class OfVault:
    """A transit key of Vault."""

    provider = "vault"

    def __init__(self, fetch, web):
        self.fetch, self.web = fetch, web

    def made(self, key="noetl", local="", **access):
        told = {"vault_address": self.web.url, "vault_token": TOKEN, **access}
        return kek_of("vault", key, local, self.fetch, clock=SystemClock(), access=Access(**told))

    @cached_property
    def kek(self):
        return self.made()

    @property
    def other(self):
        return self.made("transit/other")

    @property
    def lost(self):
        return self.made("transit/never-made")

    @property
    def stranger(self):
        return self.made(vault_token="hvs.expired")  # noqa: S106 - a bad one

    @property
    def away(self):
        return self.made(vault_address="http://127.0.0.1:1")

    def rotate(self):
        self.web.keys["transit/noetl"].rotate()

    def retire(self):
        self.web.keys["transit/noetl"].least = 2


class OfGoogle:
    """A crypto key of Cloud KMS."""

    provider = "gcp-kms"

    def __init__(self, fetch, web):
        self.fetch, self.web = fetch, web

    def made(self, key=KMS_KEY, base="", local="", **account):
        access = Access(
            google_account=json.dumps({**self.web.account, **account}),
            gcp_base=base or f"{self.web.url}/v1",
        )
        return kek_of("gcp-kms", key, local, self.fetch, clock=SystemClock(), access=access)

    @cached_property
    def kek(self):
        return self.made()

    @property
    def other(self):
        return self.made(KMS_OTHER)

    @property
    def lost(self):
        return self.made(KMS_KEY.replace("wallet", "never-made"))

    @property
    def stranger(self):
        return self.made(client_email="nobody@acme-demo.iam.gserviceaccount.com")

    @property
    def away(self):
        return self.made(base="http://127.0.0.1:1/v1")

    def rotate(self):
        self.web.kms[KMS_KEY].append(b"n" * 32)

    def retire(self):
        self.web.disabled.add((KMS_KEY, 1))


@pytest.fixture(scope="module")
def vault():
    web = Vault()
    yield web
    web.stop()


@pytest.fixture(scope="module")
def google():
    web = Google()
    yield web
    web.stop()


@pytest.fixture
async def fetch():
    fetcher = Fetcher(Guard(egress=Egress(mode="open")))
    yield fetcher
    await fetcher.close()


def _fresh(name, request, fetch):
    web = request.getfixturevalue(name)
    web.raw = None
    if name == "vault":
        web.token = TOKEN
        web.keys = {"transit/noetl": TransitKey(), "transit/other": TransitKey()}
        return OfVault(fetch, web)
    web.kms = {KMS_KEY: [b"1" * 32], KMS_OTHER: [b"o" * 32]}
    web.disabled = set()
    return OfGoogle(fetch, web)


@pytest.fixture(params=["local", "vault", "google"])
def bench(request, fetch):
    return Local() if request.param == "local" else _fresh(request.param, request, fetch)


@pytest.fixture(params=["vault", "google"])
def remote(request, fetch):
    return _fresh(request.param, request, fetch)


async def test_what_was_wrapped_is_unwrapped(bench):
    wrapped = await bench.kek.wrap(DEK)
    assert wrapped.p == bench.kek.provider == bench.provider
    assert (wrapped.kid, wrapped.kv) == await bench.kek.current()
    assert wrapped.kv == "1"
    assert await bench.kek.unwrap(wrapped) == DEK


async def test_the_key_is_not_in_what_is_stored(bench):
    one, two = await bench.kek.wrap(DEK), await bench.kek.wrap(DEK)
    assert DEK not in one.ct
    assert one.ct != two.ct
    assert "canary" not in repr(one)


async def test_after_a_rotation_old_keys_are_unwrapped_and_new_ones_have_the_new_version(bench):
    old = await bench.kek.wrap(DEK)
    bench.rotate()
    new = await bench.kek.wrap(DEK)
    assert old.version != new.version
    assert (new.kid, new.kv) == await bench.kek.current()
    assert await bench.kek.unwrap(old) == await bench.kek.unwrap(new) == DEK


async def test_a_version_that_is_no_longer_allowed_does_not_unwrap(bench):
    old = await bench.kek.wrap(DEK)
    bench.rotate()
    bench.retire()
    with pytest.raises(CannotUnwrap):
        await bench.kek.unwrap(old)
    assert await bench.kek.unwrap(await bench.kek.wrap(DEK)) == DEK


async def test_a_changed_bit_does_not_unwrap(bench):
    wrapped = await bench.kek.wrap(DEK)
    for place in range(0, len(wrapped.ct), 9):
        data = bytearray(wrapped.ct)
        data[place] ^= 1
        with pytest.raises(CannotUnwrap):
            await bench.kek.unwrap(replace(wrapped, ct=bytes(data)))


async def test_nothing_is_unwrapped_under_another_name(bench):
    wrapped = await bench.kek.wrap(DEK)
    other = await bench.other.wrap(DEK)
    strangers = (
        replace(wrapped, kid=other.kid),
        replace(wrapped, kid="no such key"),
        replace(wrapped, kid="../sys/mounts"),
        replace(wrapped, p="someone"),
        replace(wrapped, ct=b""),
        replace(wrapped, ct=b"\xff"),
    )
    for one in strangers:
        with pytest.raises(CannotUnwrap) as caught:
            await bench.kek.unwrap(one)
        assert "canary" not in "".join(traceback.format_exception(caught.value))


async def test_a_wallet_rotates_on_it(bench):
    record = await Wallet(bench.kek, SystemClock()).seal(b"canary-record", PLACE)
    bench.rotate()
    wallet = Wallet(bench.kek, SystemClock())
    moved = await wallet.rewrap(record)
    assert version_of(moved) == await wallet.current()
    assert json.loads(moved)["ct"] == json.loads(record)["ct"]
    bench.retire()
    fresh = Wallet(bench.kek, SystemClock())
    assert await fresh.open(moved, PLACE) == b"canary-record"
    with pytest.raises(CannotUnwrap):
        await fresh.open(record, PLACE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("local", "vault"),
        ("local", "gcp-kms"),
        ("vault", "gcp-kms"),
        ("gcp-kms", "vault"),
        ("vault", "local"),
        ("gcp-kms", "local"),
    ],
)
async def test_records_move_from_any_provider_to_any_other(request, fetch, old, new):
    vault, google = _fresh("vault", request, fetch).web, _fresh("google", request, fetch).web
    access = Access(
        vault_address=vault.url,
        vault_token=TOKEN,
        google_account=json.dumps(google.account),
        gcp_base=f"{google.url}/v1",
    )
    keys = {"": "", "local": "", "vault": "noetl", "gcp-kms": KMS_KEY}
    local = make_key()

    def wallet(provider, previous=""):
        told = local if "local" in {provider, previous} else ""
        more = {"access": access, "previous": previous, "previous_key": keys[previous]}
        kek = kek_of(provider, keys[provider], told, fetch, clock=SystemClock(), **more)
        return Wallet(kek, SystemClock())

    before, ready, moving, after = wallet(old), wallet(old, new), wallet(new, old), wallet(new)
    record = await before.seal(b"canary-record", PLACE)
    fresh = await moving.seal(b"canary-fresh", PLACE)
    assert [version_of(one)[0] for one in (record, fresh)] == [old, new]
    for one in (ready, moving):  # servers with the new settings, and those that wait for them
        assert await one.open(record, PLACE) == b"canary-record"
        assert await one.open(fresh, PLACE) == b"canary-fresh"
    moved = await moving.rewrap(record)
    assert version_of(moved) == await moving.current() == await after.current()
    assert json.loads(moved)["ct"] == json.loads(record)["ct"]
    assert await moving.rewrap(moved) is None
    assert await after.open(moved, PLACE) == b"canary-record"
    with pytest.raises(CannotUnwrap):
        await after.open(record, PLACE)


async def test_local_keys_beside_a_service_open_older_records_unnamed(remote):
    local = make_key()
    record = await Wallet(LocalKek(local), SystemClock()).seal(b"canary-record", PLACE)
    wallet = Wallet(remote.made(local=local), SystemClock())
    assert await wallet.open(record, PLACE) == b"canary-record"
    moved = await wallet.rewrap(record)
    assert version_of(moved)[0] == remote.provider
    assert await Wallet(remote.kek, SystemClock()).open(moved, PLACE) == b"canary-record"


# ---------------------------------------------------------------------------- a service that fails


async def each_call(kek, wrapped):
    """The error of each of the three calls."""
    found = []
    for call in (kek.current, lambda: kek.wrap(DEK), lambda: kek.unwrap(wrapped)):
        with pytest.raises((KekUnavailable, CannotWrap, CannotUnwrap)) as caught:
            await call()
        assert "canary" not in "".join(traceback.format_exception(caught.value))
        found.append(type(caught.value))
    return found


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_service_that_is_down_may_answer_later(remote, status):
    wrapped = await remote.kek.wrap(DEK)
    kek = remote.kek
    await kek.current()
    remote.web.raw = (status, b'{"errors": ["canary: it repeats what it was sent"]}')
    assert await each_call(kek, wrapped) == [KekUnavailable] * 3


async def test_a_service_that_nobody_runs_may_answer_later(remote):
    assert await each_call(remote.away, await remote.kek.wrap(DEK)) == [KekUnavailable] * 3


async def test_a_service_that_refuses_us_may_take_us_later(remote):
    assert await each_call(remote.stranger, await remote.kek.wrap(DEK)) == [KekUnavailable] * 3


async def test_a_key_that_does_not_exist(remote):
    wrapped = await remote.kek.wrap(DEK)
    kid = (await remote.kek.current())[0].replace("noetl", "never").replace("wallet", "never")
    lost = remote.lost
    with pytest.raises(KekUnavailable):
        await lost.current()
    with pytest.raises(CannotWrap):
        await lost.wrap(DEK)
    with pytest.raises(CannotUnwrap):
        await lost.unwrap(replace(wrapped, kid=kid))


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"{}", b'{"data": 1}', b'{"data": {}}'])
async def test_an_answer_that_is_none(remote, body):
    wrapped = await remote.kek.wrap(DEK)
    kek = remote.kek
    await kek.current()
    remote.web.raw = (200, body)
    current, wrap, unwrap = await each_call(kek, wrapped)
    assert current is KekUnavailable
    assert wrap in {CannotWrap, KekUnavailable}
    assert unwrap in {CannotUnwrap, KekUnavailable}


async def test_an_address_that_may_not_be_reached_is_not_asked(remote):
    wrapped = await remote.kek.wrap(DEK)
    guarded = Fetcher(Guard(egress=Egress()))
    before = len(remote.web.asked)
    remote.fetch = guarded
    assert await each_call(remote.made(), wrapped) == [KekUnavailable] * 3
    assert len(remote.web.asked) == before
    await guarded.close()


async def test_an_outage_does_not_close_known_records(remote):
    clock = Clock()
    wallet = Wallet(remote.kek, clock)
    record = await wallet.seal(b"canary-record", PLACE)
    remote.web.raw = (503, b"")
    clock.ahead_s = KNOWN_S - 1
    assert await wallet.open(record, PLACE) == b"canary-record"
    clock.ahead_s = KNOWN_S + 1
    with pytest.raises(KekUnavailable):
        await wallet.open(record, PLACE)
    remote.web.raw = None
    assert await wallet.open(record, PLACE) == b"canary-record"


async def test_vault_is_told_its_namespace(request, vault, fetch):
    bench = _fresh("vault", request, fetch)
    vault.namespace = "team-a"
    try:
        assert await bench.made(vault_namespace="team-a").current() == ("transit/noetl", "1")
        with pytest.raises(KekUnavailable):
            await bench.made().current()
    finally:
        vault.namespace = ""


async def test_a_token_of_vault_is_taken_anew_from_its_file(request, vault, fetch, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    kek = _fresh("vault", request, fetch).made(vault_token_file=file)
    wrapped = await kek.wrap(DEK)
    vault.token = "hvs.canary-renewed"  # noqa: S105 - of a stand-in
    file.write_text(vault.token, encoding="utf-8")
    before = len(vault.asked)
    assert await kek.unwrap(wrapped) == DEK
    assert len(vault.asked) == before + 1
    file.unlink()
    assert await kek.unwrap(wrapped) == DEK


@pytest.mark.parametrize(
    ("following", "result", "sent"),
    [
        (["hvs.renewed", "hvs.renewed"], DEK, [TOKEN, "hvs.renewed"]),
        (["hvs.one", "hvs.two"], "Vault answered 403", [TOKEN, "hvs.one"]),
        ([TOKEN], "Vault answered 403", [TOKEN]),
    ],
)
async def test_who_is_refused_by_vault_looks_for_another_token_once(  # noqa: PLR0913, PLR0917 - fixtures
    request, vault, fetch, tmp_path, following, result, sent
):
    bench = _fresh("vault", request, fetch)
    wrapped = await bench.kek.wrap(DEK)
    file = tmp_path / "token"
    file.write_text(TOKEN, encoding="utf-8")
    left = list(following)

    async def replaced_meanwhile(ask):
        answer = await fetch(ask)
        file.write_text(left.pop(0), encoding="utf-8")
        return answer

    bench.fetch = replaced_meanwhile
    kek = bench.made(vault_token_file=file)
    vault.token, before = "hvs.renewed", len(vault.asked)
    try:
        found = await kek.unwrap(wrapped)
    except KekUnavailable as fault:
        found = fault.message
    assert found == result
    assert [one.headers["x-vault-token"] for one in vault.asked[before:]] == sent


async def test_the_machine_itself_may_be_who_asks_google(google, fetch):
    async def metadata(ask):
        return await fetch(
            replace(ask, url=ask.url.replace("http://metadata.google.internal", google.url))
        )

    google.raw = None
    access = Access(metadata=metadata, gcp_base=f"{google.url}/v1")
    kek = kek_of("gcp-kms", KMS_KEY, "", fetch, clock=SystemClock(), access=access)
    assert await kek.unwrap(await kek.wrap(DEK)) == DEK
    asked = [one.path for one in google.asked if one.path.startswith("/computeMetadata")]
    assert len(asked) == 1, "the token is kept while it holds"


async def test_a_wrapped_key_says_nothing_but_its_version():
    assert repr(Wrapped("p", "kid", "7", b"canary")) == "Wrapped(p='p', kid='kid', kv='7')"
