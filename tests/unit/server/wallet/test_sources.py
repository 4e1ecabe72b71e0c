"""Credentials that lie elsewhere: kept for a while, or read on the server's own machine."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.credentials import CredentialPut
from noetl.api.problems import Refused
from noetl.server.surroundings import Surroundings
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, Asked, scene

USES = "workflow:\n  - {step: start, tool: {kind: http, auth: far, url: 'http://x'}}\n"


def far(kind: str = "bearer", **source) -> CredentialPut:
    return CredentialPut(name="far", type=kind, from_=source)


async def refused(asking) -> str:
    with pytest.raises(Refused) as caught:
        await asking
    assert CANARY not in str(caught.value.problem)
    return caught.value.problem.code


@virtually
async def test_what_a_manager_gave_is_kept_sealed_for_ten_minutes() -> None:
    asked = Asked(lambda _: {"data": {"data": {"v": f"{CANARY}-{len(asked.asks)}"}}})
    async with scene(fetch=asked, lease_s=100_000) as s:
        vault = {"url": "https://vault", "token": "vault-tok-1"}
        await s.client.put_credential(CredentialPut(name="vault", type="vault", data=vault))
        await s.client.put_credential(far(provider="vault", map={"token": "a#v"}, auth="vault"))
        command = await s.claimed(USES)

        async def token():
            return (await s.sealed("far", command))["data"]["token"]

        assert await asyncio.gather(token(), token(), token()) == [f"{CANARY}-1"] * 3
        await asyncio.sleep(590)
        assert await token() == f"{CANARY}-1"
        assert len(asked.asks) == 1
        rows = await s.r.store.records.page("keychain")
        assert len(rows) == 1
        assert CANARY not in str(rows)
        await asyncio.sleep(20)
        assert await token() == f"{CANARY}-1"  # the old one, while the new one is read
        await asyncio.sleep(0.1)
        assert await token() == f"{CANARY}-2"
        await s.client.put_credential(far(provider="vault", map={"token": "b#v"}, auth="vault"))
        assert await token() == f"{CANARY}-3"  # another version of it is another value


@virtually
async def test_credentials_that_lead_to_each_other_are_refused_at_once() -> None:
    asked = Asked(lambda _: {"data": {"data": {"v": CANARY}}})
    async with scene(fetch=asked) as s:
        for name, other in (("far", "near"), ("near", "far")):
            source = {"provider": "vault", "map": {"token": "a#v"}, "auth": other}
            await s.client.put_credential(CredentialPut(name=name, type="bearer", from_=source))
        command = await s.claimed(USES)
        began = asyncio.get_running_loop().time()
        assert await refused(s.sealed("far", command)) == "secret_refused"
        assert asyncio.get_running_loop().time() - began < 1
        assert asked.asks == []


@virtually
async def test_a_variable_is_read_if_the_operator_lists_it() -> None:
    around = Surroundings(environment={"API_TOKEN": CANARY, "PG": '{"host": "h", "user": "u"}'})
    async with scene(surroundings=around) as s:
        for put, data in (
            (far(env="API_TOKEN"), {"token": CANARY}),
            (far(provider="env", map={"token": "API_TOKEN"}), {"token": CANARY}),
            (far("postgres", env="PG"), {"host": "h", "user": "u"}),
        ):
            await s.client.put_credential(put)
            command = await s.claimed(USES)
            assert (await s.sealed("far", command))["data"] == data
            await s.r.done(command)
        for put, code in (
            (far(env="PATH"), "secret_missing"),
            (far(env="NOETL_ENCRYPTION_KEY"), "secret_missing"),
            (far("postgres", env="API_TOKEN"), "secret_refused"),
        ):
            await s.client.put_credential(put)
            command = await s.claimed(USES)
            assert await refused(s.sealed("far", command)) == code
            await s.r.done(command)


def test_a_file_is_read_in_its_folder_and_nowhere_else(tmp_path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (inside / "token").write_text(f"{CANARY}\n")
    (inside / "deep" / "token").write_text(CANARY)
    (inside / "link_in").symlink_to(inside / "token")
    (outside / "token").write_text("not-to-be-read-1")
    (inside / "link_out").symlink_to(outside / "token")
    (inside / "link_dir").symlink_to(outside)
    (inside / "loop").symlink_to(inside / "loop")
    (inside / "huge").write_bytes(b"x" * ((1 << 20) + 1))
    (inside / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "inside2").mkdir()
    (tmp_path / "inside2" / "token").write_text("not-to-be-read-2")

    @virtually
    async def test() -> None:
        around = Surroundings(folders=(tmp_path / "none", inside))
        async with scene(surroundings=around) as s:

            async def given(name):
                await s.client.put_credential(far(file=name))
                command = await s.claimed(USES)
                try:
                    return (await s.sealed("far", command))["data"]["token"]
                finally:
                    await s.r.done(command)

            for name in ("token", "deep/token", "link_in", "deep/../token"):
                assert await given(name) == CANARY, name
            for name in (
                "../outside/token", "link_out", "link_dir/token", str(outside / "token"),
                "/etc/passwd", "../inside2/token", "nothing", "deep", ".", "/proc/self/environ",
                "token/../../outside/token", "to\0ken", "loop", "n" * 5000,
            ):  # fmt: skip
                assert await refused(given(name)) in {"secret_missing", "validation_failed",
                                                      "bad_value"}, name  # fmt: skip
            for name in ("huge", "bytes"):
                assert await refused(given(name)) == "secret_refused", name

    test()


@virtually
async def test_a_refusal_never_shows_a_value_that_the_server_has_opened() -> None:
    async with scene() as s:
        data = {"host": "h", "password": CANARY}
        await s.client.put_credential(CredentialPut(name="pg", type="postgres", data=data))
        for text in (CANARY, f"x {CANARY} y"):
            with pytest.raises(Refused) as caught:
                await s.client.credential(text)
            assert "***" in caught.value.problem.detail
            assert CANARY not in str(caught.value.problem)
