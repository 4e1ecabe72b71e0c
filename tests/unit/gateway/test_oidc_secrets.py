"""Secrets of providers that lie in the wallet: when they are asked for, and who sees them."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from noetl.api.credentials import SealedAnswer
from noetl.api.problems import Problem, Refused
from noetl.clock import rfc3339
from noetl.gateway.errors import AuthUnavailable, UpstreamUnreachable
from noetl.gateway.oidc import Provider, SignIns
from noetl.gateway.oidc.errors import CodeRefused
from noetl.gateway.oidc.secrets import AGAIN_S, ClientSecrets
from noetl.secrets.sealed import KeyPair, about_delivery, seal_to
from noetl.server.wallet.sealing import KEPT
from noetl.settings import BadSetting
from noetl.telemetry.fingerprints import Fingerprints
from tests.fakes.issuer import CLIENT, SECRET
from tests.unit.gateway.test_oidc import URL, Stage

ALIAS = "corp_client"
OLD = "a-secret-of-yesterday"


class Wallet:
    """The server as secrets are asked of it."""

    def __init__(self, clock, public):
        self._clock = clock
        self.public = public
        self.data = {"client_id": CLIENT, "client_secret": SECRET}
        self.about = about_delivery("gw-1", "sign-in:corp", ALIAS)
        self.asked = []
        self.fault = None

    async def sign_in_secret(self, alias, process, provider):
        self.asked.append((alias, process, provider))
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        value = json.dumps({"type": "oauth2", "data": self.data}).encode()
        sealed = seal_to(self.public, value, self.about)
        return SealedAnswer(
            alg=sealed.alg, v=sealed.v, eph_pub=sealed.eph_pub, ciphertext=sealed.ciphertext,
            expires_at=rfc3339(self._clock.now() + KEPT),
        )  # fmt: skip


class Aliased(Stage):
    """A provider whose secret lies in the wallet."""

    def __init__(self):
        super().__init__(client_secret="", client_secret_alias=ALIAS)
        keys = KeyPair.make()
        self.wallet, self.seen = Wallet(self.clock, keys.public), Fingerprints()
        secrets = ClientSecrets(
            lambda: self.wallet, name="gw-1", keys=keys, seen=self.seen, clock=self.clock
        )
        self.sign_ins = SignIns(self.providers, self.keys, self.fetch, self.clock, secrets)

    async def signed_in(self):
        url, binding = await self.start()
        identity, _ = await self.finish(await self.visit(url), binding)
        return identity.subject


@pytest.fixture
def stage():
    return Aliased()


async def test_the_secret_is_asked_for_when_it_is_first_needed_and_kept(stage):
    url, binding = await stage.start()
    back = await stage.visit(url)
    assert stage.wallet.asked == []
    await stage.finish(back, binding)
    assert await stage.signed_in() == "issuer|ada"
    assert stage.wallet.asked == [(ALIAS, "gw-1", "corp")]
    assert stage.seen.masked(f"it is {SECRET}!") == "it is ***!"
    assert SECRET not in repr(vars(stage.sign_ins)["_secrets"]._kept)  # noqa: SLF001 - what a log would show


async def test_many_who_come_at_once_ask_once(stage):
    begun = [await stage.start() for _ in range(5)]
    backs = [(await stage.visit(url), binding) for url, binding in begun]
    await asyncio.gather(*(stage.finish(back, binding) for back, binding in backs))
    assert len(stage.wallet.asked) == 1


async def test_it_is_asked_for_again_after_its_time(stage):
    await stage.signed_in()
    stage.clock.passed = KEPT.total_seconds() - 1
    await stage.signed_in()
    assert len(stage.wallet.asked) == 1
    stage.clock.passed = KEPT.total_seconds()
    await stage.signed_in()
    assert len(stage.wallet.asked) == 2


async def test_one_that_the_issuer_takes_no_longer_is_asked_for_anew_and_nobody_notices(stage):
    stage.wallet.data["client_secret"] = OLD
    with pytest.raises(CodeRefused):
        await stage.signed_in()
    stage.clock.passed = AGAIN_S
    stage.wallet.data["client_secret"] = SECRET
    before = len(stage.wallet.asked)
    assert await stage.signed_in() == "issuer|ada"
    assert len(stage.wallet.asked) == before + 1
    assert [OLD in stage.seen.masked(text) for text in (OLD, "x")] == [False, False]


async def test_a_wallet_with_a_wrong_secret_is_not_asked_by_everybody(stage, caplog):
    stage.wallet.data["client_secret"] = OLD
    for _ in range(4):
        with pytest.raises(CodeRefused):
            await stage.signed_in()
    assert len(stage.wallet.asked) == 2, "the first one, and once more to be sure"
    assert stage.issuer.seen["token"] == 4, "the same secret is not tried twice"
    told = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert {one.getMessage() for one in told} == {
        "an issuer does not take the secret of the gateway"
    }
    assert OLD not in caplog.text


@pytest.mark.parametrize(
    "fault",
    [
        Refused(Problem(type="x", status=403, code="forbidden", title="x", detail="x")),
        Refused(Problem(type="x", status=404, code="not_found", title="x", detail="x")),
        UpstreamUnreachable("away"),
        TimeoutError(),
    ],
    ids=str,
)
async def test_without_the_server_nobody_is_wrong_and_the_next_one_asks_again(stage, fault):
    stage.wallet.fault = fault
    with pytest.raises(AuthUnavailable) as refused:
        await stage.signed_in()
    assert (refused.value.status, refused.value.code) == (503, "auth_unavailable")
    stage.wallet.fault = None
    assert await stage.signed_in() == "issuer|ada"


@pytest.mark.parametrize("part", ["gw-2", "corp2", "other"])
async def test_what_was_sealed_for_another_purpose_is_not_used(stage, part):
    given = {"gw-2": ("gw-2", "sign-in:corp", ALIAS), "corp2": ("gw-1", "sign-in:corp2", ALIAS),
             "other": ("gw-1", "sign-in:corp", "other")}  # fmt: skip
    stage.wallet.about = about_delivery(*given[part])
    with pytest.raises(AuthUnavailable):
        await stage.signed_in()


@pytest.mark.parametrize(
    "data", [{"client_id": "another", "client_secret": SECRET}, {}, {"client_secret": 7}], ids=str
)
async def test_the_secret_of_another_client_goes_to_no_issuer(stage, data, caplog):
    stage.wallet.data = data
    with pytest.raises(AuthUnavailable):
        await stage.signed_in()
    assert "token" not in stage.issuer.seen
    assert SECRET not in caplog.text


def test_a_provider_has_one_secret():
    told = {"name": "x", "issuer": URL, "client_id": "c", "audience": "a"}
    with pytest.raises(BadSetting):
        Provider(**told, client_secret="s", client_secret_alias="a")  # noqa: S106 - of a test
