"""Who somebody is, over sockets: two servers on one PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.identity import (
    AccountChange,
    Identity,
    Login,
    NewAccount,
    NewRole,
    NewTenant,
    NewToken,
    PathGrant,
    PlaybookAccess,
)
from noetl.api.problems import Refused
from noetl.api.sockets import SocketTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.edge.http import bound, listener
from noetl.ids import Ids
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.signed import HEADER, key_of, sign
from noetl.secrets.wallet import Wallet
from noetl.server.access.tokens import new_token
from noetl.server.admin import Bearer, welcome
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.servers import ENCRYPTION_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

INNER = "the-internal-token"
PASSWORD = "correct horse battery"  # noqa: S105 - of nobody
SOON_S = 8.0
"""Five seconds, and a slow machine."""


class Speaking:
    """The transport of a gateway that speaks for somebody."""

    def __init__(self, below: SocketTransport, word: str) -> None:
        self._below = below
        self._word = word

    async def request(self, method, path, body=b"", headers=None):
        told = {**(headers or {}), HEADER.lower(): self._word}
        return await self._below.request(method, path, body, told)


def word_for(opened, **more) -> str:
    """What a gateway says of who has signed in."""
    user = opened.user
    claims = {
        "sub": user.user_id, "name": user.subject, "roles": list(user.roles),
        "tenant": user.tenant, "sid": opened.session_id, "ip": "203.0.113.5", "own": True,
    }  # fmt: skip
    return sign(claims | more, key_of(INNER), SystemClock().now().timestamp(), "j")


@asynccontextmanager
async def serving(url: str, machine: int) -> AsyncIterator[Callable[[str], Client]]:
    """A server; what makes clients of it."""
    clock, database = SystemClock(), await Database.open(url, size=4)
    parts = ServerParts(
        store=PostgresStore(database), bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock,
        ids=Ids(clock, machine), is_open=False, is_alone=False, cursor_key=b"the same",
        password_kib=64, internal_tokens=(INNER,), wallet=Wallet(LocalKek(ENCRYPTION_KEY), clock),
    )  # fmt: skip
    at, transports = bound("127.0.0.1", 0), []

    def client(token: str, word: str = "") -> Client:
        transports.append(SocketTransport(f"http://127.0.0.1:{at.getsockname()[1]}", token=token))
        return Client(Speaking(transports[-1], word) if word else transports[-1])

    async with create_server(parts) as server:
        web = listener(server.asgi)
        running = asyncio.ensure_future(web.serve(sockets=[at]))
        await web.heard.wait()
        try:
            yield client
        finally:
            server.plane.streams.drain()
            for transport in transports:
                await transport.close()
            web.stop()
            await running
    await database.close()


@pytest.fixture
async def two(postgres_url):
    """Two servers, and the tokens of an admin and of a gateway."""
    tokens = {"admin": new_token(), "gateway": new_token()}
    bearers = [
        Bearer(token=text, account=role, roles=(role,), name=role) for role, text in tokens.items()
    ]
    await welcome(postgres_url, bearers)
    await welcome(postgres_url, bearers)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(postgres_url, n)) for n in (1, 2)], tokens


async def code_of(asked: Awaitable[object]) -> str:
    with pytest.raises(Refused) as caught:
        await asked
    return caught.value.code


async def refused_soon(call: Callable[[], Awaitable[object]]) -> str:
    """With which code a call is refused, once what was known of its caller is forgotten."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await call()
            except Refused as refused:
                return refused.code
            await asyncio.sleep(0.1)


async def test_a_person_is_made_signs_in_and_is_signed_out_everywhere(two):
    (first, second), tokens = two
    admin, door = first(tokens["admin"]), second(tokens["gateway"])
    assert (await admin.whoami()).kind == "service"
    made = await admin.add_user(
        NewAccount(subject="anna", email="anna@example.com", password=PASSWORD, roles=("viewer",))
    )
    opened = await door.login(
        Login(username="anna@example.com", password=PASSWORD, client_ip="10.0.0.1")
    )
    held = [client(opened.session_token) for client in (first, second)]
    assert [(await one.whoami()).account for one in held] == ["anna", "anna"]
    assert (await door.validate_session(opened.session_token)).user == opened.user
    assert [one.client for one in (await held[0].sessions()).items] == [{"ip": "10.0.0.1"}]
    await admin.change_user(made.account_id, AccountChange(password=PASSWORD[::-1]))
    assert not (await door.validate_session(opened.session_token)).valid

    assert [await refused_soon(one.whoami) for one in held] == ["session_expired"] * 2
    assert await code_of(door.login(Login(username="anna", password=PASSWORD))) == "bad_credentials"


async def test_a_role_that_is_taken_away_is_gone_on_both_servers(two):
    (first, second), tokens = two
    admin = first(tokens["admin"])
    await admin.add_role(NewRole(name="clerk", permissions=("user:admin",)))
    made = await admin.add_user(NewAccount(subject="bert", roles=("viewer", "clerk")))
    token = await admin.add_token(NewToken(name="x", account_id=made.account_id))
    held = [client(token.token) for client in (first, second)]
    for one in held:
        assert [row.subject for row in (await one.users(q="bert")).items] == ["bert"]
    assert await code_of(admin.remove_role("clerk")) == "in_use"
    await admin.give_roles(made.account_id, ("viewer",))
    await admin.remove_role("clerk")

    assert [await refused_soon(one.users) for one in held] == ["forbidden"] * 2
    again = await admin.rotate_token(token.token_id)
    assert (await second(again.token).whoami()).roles == ("viewer",)
    await admin.revoke_token(token.token_id)
    assert await code_of(admin.rotate_token(token.token_id)) == "not_found"


async def test_attempts_are_counted_on_both_servers_together(two):
    (first, second), tokens = two
    await first(tokens["admin"]).add_user(NewAccount(subject="anna", password=PASSWORD))
    doors = [client(tokens["gateway"]) for client in (first, second)]
    wrong = Login(username="anna", password="x")  # noqa: S106 - wrong
    codes = [await code_of(doors[n % 2].login(wrong)) for n in range(10)]
    assert codes == ["bad_credentials"] * 10
    for door in doors:
        right = Login(username="anna", password=PASSWORD)
        assert await code_of(door.login(right)) == "rate_limited"


async def test_two_admins_who_demote_each_other_leave_one(two):
    (first, second), tokens = two
    admin = first(tokens["admin"])
    root = await admin.whoami()
    made = await admin.add_user(NewAccount(subject="second", roles=("admin",)))
    other = second((await admin.add_token(NewToken(name="x", account_id=made.account_id))).token)
    assert (await other.whoami()).roles == ("admin",)  # which is believed for a moment
    found = await asyncio.gather(
        admin.give_roles(made.account_id, ()),
        other.give_roles(root.account_id, ()),
        return_exceptions=True,
    )
    assert [one.code for one in found if isinstance(one, Refused)] == ["in_use"]


async def test_an_identity_has_one_account_whichever_server_is_asked(two):
    (first, second), tokens = two
    who = Identity(
        issuer="https://id.example.com/", subject="12", email="c@example.com",
        email_verified=True, display_name="Cora", roles=("viewer",),
    )  # fmt: skip
    doors = [client(tokens["gateway"]) for client in (first, second)]
    made = await asyncio.gather(*(doors[n % 2].login(Login(identity=who)) for n in range(6)))
    assert len({one.user.user_id for one in made}) == 1
    admin = second(tokens["admin"])
    grant = PathGrant(effect="allow", actions=("execute",), path="finance/*")
    await admin.add_role(NewRole(name="finance", grants=(grant,)))
    await admin.give_roles(made[0].user.user_id, ("viewer", "finance"))
    answers = [
        (
            await doors[0].check_playbook_access(
                PlaybookAccess(
                    session_token=made[0].session_token, playbook_path=path, action="execute"
                )
            )
        ).allowed
        for path in ("finance/pay", "sales/pay")
    ]
    assert answers == [True, False]
    assert (await doors[0].end_session(made[0].session_token)).revoked
    assert not (await doors[1].validate_session(made[0].session_token)).valid


async def test_tenants_see_nothing_of_each_other(two):
    (first, second), tokens = two
    admin = first(tokens["admin"])
    made = await admin.add_tenant(
        NewTenant(tenant_id="acme", admin=NewAccount(subject="boss", password=PASSWORD))
    )
    opened = await second(tokens["gateway"]).login(
        Login(username="boss", password=PASSWORD, tenant="acme")
    )
    boss = second(opened.session_token)
    assert [row.subject for row in (await boss.users()).items] == ["boss"]
    assert await code_of(admin.user(made.admin.account_id)) == "not_found"
    root = (await admin.whoami()).account_id
    assert await code_of(boss.remove_user(root)) == "not_found"
    assert [row.tenant_id for row in (await admin.tenants()).items] == ["acme", "default"]
    assert await code_of(boss.tenants()) == "forbidden"


async def test_a_session_goes_on_with_another_token_on_both_servers(two):
    (first, second), tokens = two
    made = await first(tokens["admin"]).add_user(NewAccount(subject="anna", roles=("viewer",)))
    door, other = first(INNER), second(INNER)
    opened = await door.login(Login(account_id=made.account_id, session_duration_hours=2))
    found = await asyncio.gather(
        *(one.refresh_session(opened.session_token) for one in (door, other)),
        return_exceptions=True,
    )
    (fresh,) = [one for one in found if not isinstance(one, Refused)]
    assert [one.code for one in found if isinstance(one, Refused)] == ["session_expired"]
    for text in (opened.session_token, fresh.session_token):
        for at in (first, second):
            assert (await at(text).whoami()).session_id == opened.session_id
    assert (await other.end_session(fresh.session_token)).revoked
    for text in (opened.session_token, fresh.session_token):
        assert not (await door.validate_session(text)).valid


async def test_a_gateway_speaks_for_a_person_until_his_session_ends(two):
    (first, second), tokens = two
    admin = first(tokens["admin"])
    await admin.register(Register(content=PLAYBOOK))
    made = await admin.add_user(NewAccount(subject="anna", roles=("developer",)))
    opened = await second(INNER).login(Login(account_id=made.account_id))
    held = [at(INNER, word_for(opened)) for at in (first, second)]
    for one in held:
        who = await one.whoami()
        assert (who.account, who.roles, who.session_id) == (
            "anna", ("developer",), opened.session_id,
        )  # fmt: skip
        assert await code_of(one.users()) == "forbidden"
    request = {"request_id": "r-1", "client_id": "client-01", "user_id": made.account_id}
    injected = {"request_id": "r-1", "gateway_url": "http://g", "callback_token": "canary-c1"}
    body = Execute(path="ask/it", execution_id="7001", request=request, workload=injected)
    started = [await one.execute(body) for one in held]
    assert [one.status for one in started] == ["started", "duplicate"]
    for one in (*held, second(opened.session_token), first(INNER), second(tokens["gateway"])):
        for asked in ({"request_id": "r-1"}, {"client_id": "client-01"}):
            assert [run.execution_id for run in (await one.executions(**asked)).items] == ["7001"]
        run = await one.execution("7001")
        assert (run.created_by, run.workload["callback_token"]) == ("anna", "***")
    assert await code_of(first(INNER, word_for(opened)[:-2] + "AA").whoami()) == "bad_identity"
    await admin.add_role(NewRole(name="clerk"))
    await admin.give_roles(made.account_id, ("viewer",))
    assert [await refused_soon(one.whoami) for one in held] == ["session_expired"] * 2


async def test_the_audit_names_who_a_gateway_speaks_for(two):
    (first, second), tokens = two
    admin = first(tokens["admin"])
    made = await admin.add_user(NewAccount(subject="boss", roles=("admin",)))
    opened = await second(INNER).login(Login(account_id=made.account_id, client_ip="203.0.113.4"))
    await second(INNER, word_for(opened)).add_role(NewRole(name="clerk"))
    rows = [
        *(await admin.audit(action="role.created")).items,
        *(await admin.audit(action="auth.login.succeeded")).items,
    ]
    assert [(row.actor, row.source_ip) for row in rows] == [
        ("boss", "203.0.113.5"), ("boss", "203.0.113.4"),
    ]  # fmt: skip


PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: it, path: ask/it}
workflow:
  - step: start
    tool: {kind: python, code: "return 1"}
"""
