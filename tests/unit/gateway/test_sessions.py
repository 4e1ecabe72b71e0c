"""Whose a token is: from the bucket, from the server, and what ends it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from noetl.bus import subjects
from noetl.gateway.errors import AuthUnavailable, InvalidSession
from noetl.gateway.hooks import HookSession, HookUser
from noetl.gateway.remembered import Remembered
from noetl.gateway.sessions import Kept, digest
from tests.unit.gateway.desk import Desk

TOKEN = "nts_" + "a" * 51
OTHER = "nts_" + "b" * 51
API = "ntk_" + "c" * 51


@pytest.fixture
def desk():
    return Desk()


async def test_a_session_is_asked_for_once_and_then_lies_in_the_bucket(desk):
    desk.people.add(TOKEN)
    found = [await desk.sessions.of(TOKEN), await desk.replica().of(TOKEN)]
    kept = msgspec.json.decode((await desk.kept(TOKEN)).value)
    assert desk.people.asked == [TOKEN]
    assert found[0] == found[1]
    assert (found[0].user_id, found[0].session_id, found[0].roles) == ("42", "7001", ("developer",))
    assert set(kept) == {
        "session_id", "user_id", "subject", "email", "display_name", "roles", "tenant", "org",
        "expires_at", "is_active",
    }  # fmt: skip
    assert TOKEN not in str(kept)


async def test_what_lies_in_the_bucket_ends_with_the_session(desk):
    desk.people.add(TOKEN, lasts_s=60)
    await desk.sessions.of(TOKEN)
    desk.clock.passed = 61
    assert await desk.kept(TOKEN) is None


async def test_an_expired_session_that_still_lies_in_the_bucket_is_refused(desk):
    desk.people.add(TOKEN, lasts_s=60)
    await desk.sessions.of(TOKEN)
    entry = await desk.kept(TOKEN)
    await desk.keys.put(f"s.{digest(TOKEN)}", entry.value, 9999)
    desk.clock.passed = 61
    with pytest.raises(InvalidSession):
        await desk.sessions.of(TOKEN)
    assert desk.people.asked == [TOKEN]
    assert desk.count("expired") == 1


async def test_a_session_that_is_marked_as_ended_is_refused(desk):
    made = Kept(
        session_id="1", user_id="1", subject="a", email=None, display_name=None, roles=(),
        tenant="default", is_active=False,
    )  # fmt: skip
    await desk.keys.put(f"s.{digest(TOKEN)}", msgspec.json.encode(made))
    with pytest.raises(InvalidSession):
        await desk.sessions.of(TOKEN)


async def test_without_the_bucket_the_server_is_asked(desk):
    desk.people.add(TOKEN)
    desk.keys.is_down = True
    assert (await desk.sessions.of(TOKEN)).user_id == "42"
    assert desk.metrics.session_cache_failed.value("get") == 1
    assert desk.metrics.session_cache_failed.value("put") == 1


async def test_without_the_server_nobody_is_called_wrong(desk):
    desk.people.is_down = True
    with pytest.raises(AuthUnavailable):
        await desk.sessions.of(TOKEN)
    desk.people.is_down = False
    desk.people.add(TOKEN)
    assert (await desk.sessions.of(TOKEN)).user_id == "42"


async def test_without_the_server_a_session_of_the_bucket_still_counts(desk):
    desk.people.add(TOKEN)
    await desk.sessions.of(TOKEN)
    desk.people.is_down = True
    desk.clock.passed = 200
    assert (await desk.sessions.of(TOKEN)).user_id == "42"


async def test_a_session_with_another_token_is_used_by_its_id_and_lies_in_the_bucket(desk):
    desk.people.add(TOKEN)
    person = replace(await desk.sessions.of(TOKEN), via="ticket", address="192.0.2.1")
    desk.people.add(OTHER, lasts_s=7200)
    del desk.people.known[TOKEN]
    await desk.sessions.renewed("7001", digest(TOKEN))
    desk.clock.passed = 1
    found = [await desk.sessions.used(person), await desk.replica().used(person)]
    assert found[0] == found[1] == replace(person, expires_at=found[0].expires_at)
    assert found[0].expires_at > person.expires_at
    assert desk.people.looked == [("7001", True)]
    await desk.sessions.ended("7001", digest(OTHER))
    desk.people.known.clear()
    with pytest.raises(InvalidSession):
        await desk.sessions.used(person)


async def test_a_look_is_no_use_and_hides_none(desk):
    desk.people.add(TOKEN)
    person = await desk.sessions.of(TOKEN)
    assert await desk.sessions.look(person) == person
    assert await desk.sessions.look(person) == person
    assert desk.people.looked == [("7001", False)] * 2
    assert await desk.keys.get("s.7001") is None
    desk.people.is_down = True
    with pytest.raises(AuthUnavailable):
        await desk.sessions.look(person)


async def test_a_token_of_the_api_is_looked_at_by_itself(desk):
    desk.people.add(API, session_id="token-1")
    person = await desk.sessions.of(API)
    assert await desk.sessions.look(person) == await desk.sessions.used(person) == person
    desk.people.known.clear()
    desk.clock.passed = 6
    for asking in (desk.sessions.look, desk.sessions.used):
        with pytest.raises(InvalidSession):
            await asking(person)
    assert desk.people.looked == []


async def test_an_unknown_token_is_asked_for_once_in_five_seconds(desk):
    for _ in range(3):
        with pytest.raises(InvalidSession):
            await desk.sessions.of(TOKEN)
    assert desk.people.asked == [TOKEN]
    desk.clock.passed = 5
    desk.people.add(TOKEN)
    assert (await desk.sessions.of(TOKEN)).user_id == "42"


async def test_what_is_remembered_takes_up_a_bounded_room(desk):
    facts = Remembered(desk.clock, 5.0, most=3)
    for name in "abcd":
        facts.put(name, name)
    assert (len(facts), facts.get("a"), facts.get("d")) == (3, None, "d")
    desk.clock.passed = 5
    assert facts.get("d") is None


@pytest.mark.parametrize("text", ["", "Bearer", "nt_" + "a" * 51, "nts_ü", "nts_" + "a" * 5000])
async def test_what_can_be_no_token_is_asked_for_nowhere(desk, text):
    with pytest.raises(InvalidSession):
        await desk.sessions.of(text)
    assert desk.people.asked == []


async def test_a_token_of_the_api_is_believed_for_five_seconds_and_never_kept(desk):
    desk.people.add(API, session_id="token-9")
    assert (await desk.sessions.of(API)).session_id == "token-9"
    await desk.sessions.of(API)
    assert desk.people.asked == [API]
    assert await desk.kept(API) is None
    desk.people.known.clear()
    desk.clock.passed = 5
    with pytest.raises(InvalidSession):
        await desk.sessions.of(API)


async def test_the_end_of_a_session_reaches_every_replica(desk):
    desk.people.add(TOKEN)
    there, closed = desk.replica(), asyncio.Queue()
    there.on_revoked.append(closed.put)
    listening = asyncio.create_task(there.listen())
    await asyncio.sleep(0)
    await desk.sessions.of(TOKEN)
    await there.of(TOKEN)
    desk.people.known.clear()
    await desk.sessions.ended("7001", digest(TOKEN))
    assert await asyncio.wait_for(closed.get(), 5) == "7001"
    for sessions in (desk.sessions, there):
        with pytest.raises(InvalidSession):
            await sessions.of(TOKEN)
    assert closed.empty()
    listening.cancel()


async def test_words_that_nobody_understands_do_not_end_the_listening(desk):
    closed = asyncio.Queue()
    desk.sessions.on_revoked.append(closed.put)
    listening = asyncio.create_task(desk.sessions.listen())
    await asyncio.sleep(0)
    for payload in (b"\xff", b"[]", b'{"session_id": 7}', b'{"session_id": "8"}'):
        await desk.bus.tell(subjects.revoked("8"), payload)
    assert await asyncio.wait_for(closed.get(), 5) == "8"
    listening.cancel()


async def test_a_session_that_ends_while_it_is_looked_up_is_not_kept(desk):
    desk.people.add(TOKEN)

    async def end():
        desk.people.on_asked = None
        desk.people.known.clear()
        await desk.sessions.forget(digest(TOKEN))

    desk.people.on_asked = end
    with pytest.raises(InvalidSession):
        await desk.sessions.of(TOKEN)
    assert await desk.kept(TOKEN) is None


# ------------------------------------------------------------------- sessions of playbooks

FOREIGN = "a-token-that-a-playbook-made"


class Playbook:
    """A hook that knows one session, for as long as it was told."""

    is_on = True

    def __init__(self):
        self.asked = 0
        self.ends = "2026-03-31T12:00:00Z"
        self.on_asked = None

    async def validate(self, token):
        self.asked += 1
        if self.on_asked is not None:
            await self.on_asked()
        user = HookUser(user_id="u-7", email="eve@example.org")
        return HookSession(user=user, expires_at=self.ends) if token == FOREIGN else None


@pytest.fixture
def playbook():
    return Playbook()


@pytest.mark.parametrize("ends", ["2026-03-31T12:00:00Z", "2099-01-01T00:00:00Z"])
async def test_the_end_of_a_session_is_remembered_longer_than_it_would_have_lasted(playbook, ends):
    desk = Desk(playbook)
    playbook.ends = ends
    await desk.sessions.end_hooked(await desk.sessions.of(FOREIGN))
    for days in (0, 1, 58, 59):
        desk.clock.passed = days * 86_400.0
        for sessions in (desk.sessions, desk.replica(playbook)):
            with pytest.raises(InvalidSession):
                await sessions.of(FOREIGN)
    assert playbook.asked == 1


async def test_a_session_that_was_ended_for_a_short_while_is_remembered_for_a_day(playbook):
    desk = Desk(playbook)
    playbook.ends = "2026-01-31T12:00:10Z"
    person = await desk.sessions.of(FOREIGN)
    await desk.sessions.end_hooked(person)
    playbook.ends = "2026-03-31T12:00:00Z"  # it slides with every use that is made of it elsewhere
    desk.clock.passed = 86_000.0
    with pytest.raises(InvalidSession):
        await desk.sessions.of(FOREIGN)


async def test_a_playbook_that_answers_late_brings_no_ended_session_back(playbook):
    desk = Desk(playbook)
    person = await desk.sessions.of(FOREIGN)
    await desk.sessions.forget(digest(FOREIGN))
    deaf = desk.replica(playbook)

    async def meanwhile():
        playbook.on_asked = None
        await desk.sessions.end_hooked(person)

    playbook.on_asked = meanwhile
    with pytest.raises(InvalidSession):
        await deaf.of(FOREIGN)
    assert await desk.kept(FOREIGN) is None
    assert playbook.asked == 2


async def test_what_cannot_be_written_down_or_read_is_no_answer(playbook):
    desk = Desk(playbook)
    person = await desk.sessions.of(FOREIGN)
    desk.keys.is_down = True
    with pytest.raises(AuthUnavailable):
        await desk.sessions.end_hooked(person)
    with pytest.raises(AuthUnavailable):
        await desk.replica(playbook).of(FOREIGN)
    desk.people.add(TOKEN)
    assert (await desk.replica(playbook).of(TOKEN)).user_id == "42", "the server needs no bucket"
    desk.keys.is_down = False
    assert (await desk.sessions.of(FOREIGN)).user_id == "u-7"
