"""Tickets: once, for a short while, for one purpose."""

from __future__ import annotations

import asyncio

import pytest

from noetl.edge.errors import Forbidden
from noetl.gateway.errors import AuthUnavailable, InvalidSession, TicketUsed
from noetl.gateway.tickets import Tickets
from tests.unit.gateway.desk import Desk

TOKEN = "nts_" + "a" * 51


@pytest.fixture
def desk():
    made = Desk()
    made.people.add(TOKEN)
    made.tickets = Tickets(keys=made.keys, sessions=made.sessions, clock=made.clock)
    return made


async def issued(desk, purpose="events"):
    return await desk.tickets.issue(await desk.sessions.of(TOKEN), purpose)


async def test_a_ticket_works_once_within_30_seconds(desk):
    ticket = await issued(desk)
    desk.clock.passed = 29
    found = await desk.tickets.redeem(ticket, "events")
    assert (found.user_id, found.via, found.token) == ("42", "ticket", TOKEN)
    with pytest.raises(TicketUsed):
        await desk.tickets.redeem(ticket, "events")


async def test_two_who_come_at_once_with_one_ticket_are_one(desk):
    ticket = await issued(desk)
    found = await asyncio.gather(
        *(desk.tickets.redeem(ticket, "events") for _ in range(8)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in found) == ["Person", *["TicketUsed"] * 7]


@pytest.mark.parametrize("purpose", ["ws", "graphql", "login", ""])
async def test_a_ticket_for_something_else_is_refused_and_gone(desk, purpose):
    ticket = await issued(desk)
    for wanted in (purpose, "events"):
        with pytest.raises(TicketUsed):
            await desk.tickets.redeem(ticket, wanted)


async def test_that_a_ticket_was_used_is_written_as_long_as_it_would_last(desk):
    """A broker that is killed may bring back what was deleted, and nothing that was replaced."""
    ticket = await issued(desk)
    [key] = await desk.keys.names("t")
    await desk.tickets.redeem(ticket, "events")
    assert (await desk.keys.get(key)).value == b""
    with pytest.raises(TicketUsed):
        await desk.tickets.redeem(ticket, "events")


async def test_a_ticket_is_refused_in_second_31(desk):
    ticket = await issued(desk)
    desk.clock.passed = 31
    with pytest.raises(TicketUsed):
        await desk.tickets.redeem(ticket, "events")


async def test_a_bucket_that_forgets_late_makes_no_ticket_longer(desk):
    ticket = await issued(desk)
    [key] = await desk.keys.names("t")
    entry = await desk.keys.get(key)
    await desk.keys.put(key, entry.value, 9999)
    desk.clock.passed = 31
    with pytest.raises(TicketUsed):
        await desk.tickets.redeem(ticket, "events")


@pytest.mark.parametrize("text", ["", "x", "a" * 43, "../" + "a" * 40, "a" * 4000])
async def test_what_is_no_ticket_is_refused(desk, text):
    with pytest.raises(TicketUsed):
        await desk.tickets.redeem(text, "events")


async def test_a_ticket_of_a_session_that_has_ended_opens_nothing(desk):
    ticket = await issued(desk)
    desk.people.known.clear()
    desk.clock.passed = 2
    await desk.sessions.forget((await desk.keys.names("s"))[0].removeprefix("s."))
    with pytest.raises(InvalidSession):
        await desk.tickets.redeem(ticket, "events")


async def test_the_bucket_holds_neither_tickets_nor_tokens(desk):
    ticket = await issued(desk)
    [key] = await desk.keys.names("t")
    value = (await desk.keys.get(key)).value
    assert ticket not in key
    assert TOKEN.encode() not in value
    assert ticket.encode() not in value


async def test_without_the_bucket_a_ticket_is_not_called_used(desk):
    ticket = await issued(desk)
    desk.keys.is_down = True
    with pytest.raises(AuthUnavailable):
        await desk.tickets.redeem(ticket, "events")
    desk.keys.is_down = False
    assert (await desk.tickets.redeem(ticket, "events")).user_id == "42"


async def test_a_ticket_to_sign_in_is_for_admins_and_lasts_15_minutes(desk):
    with pytest.raises(Forbidden):
        await issued(desk, "login")
    desk.people.add(TOKEN, roles=("admin",))
    await desk.sessions.forget((await desk.keys.names("s"))[0].removeprefix("s."))
    ticket = await issued(desk, "login")
    desk.clock.passed = 14 * 60
    assert await desk.tickets.redeem_login(ticket) == ("42", "default")
    with pytest.raises(TicketUsed):
        await desk.tickets.redeem_login(ticket)
