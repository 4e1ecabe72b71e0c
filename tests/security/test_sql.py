"""Texts that would be SQL, were they ever read as such: in every path, query and body there is."""

from __future__ import annotations

import logging
import typing
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest

from noetl.clock import SystemClock
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.wallet import Wallet
from tests.integration.test_two_servers import server
from tests.security.asking import sent
from tests.security.people import asked
from tests.servers import ENCRYPTION_KEY
from tests.unit.server.rig import ONE_STEP

pytestmark = pytest.mark.timeout(300)  # many requests, on a machine that may be busy
TEXTS = (
    "'; drop table noetl.event; --",
    "1' or pg_sleep(10) is null or '1'='1",
    '"; delete from noetl.execution; --',
    "%_\\%' escape '",
    "a\0b",
)
NOBODY: dict[str, str] = {}
COUNTS = """
select (select count(*) from noetl.event) as events, (select count(*) from noetl.execution) as runs,
    (select count(*) from pg_tables where schemaname = 'noetl' and tablename !~ '_20[0-9]+_')
        as tables"""


def of_body(model: Any, text: str) -> bytes:
    """A body with the text in every field that takes one."""
    if not (isinstance(model, type) and issubclass(model, msgspec.Struct)):
        return msgspec.json.encode(text)
    given = {
        field.encode_name: text
        for field in msgspec.structs.fields(model)
        if field.type is str or str in typing.get_args(field.type)
    }
    return msgspec.json.encode(given)


def requests(route, run: str, text: str) -> list[tuple[str, str, bytes]]:
    """Everything of a route that takes a text, with this one."""
    coded = quote(text, safe="")
    names = dict.fromkeys(
        ("path", "step", "kind", "name", "var_name", "key", "pool", "execution_id", "event_id",
         "schedule_id", "account_id", "token_id", "session_id", "request_id"), coded,
    )  # fmt: skip
    method, plain = asked(route)
    body = of_body(route.declared.body, text)
    named = (asked(route, **names)[1], asked(route, **names | {"execution_id": run})[1])
    found = [*((method, path, b"{}") for path in named), (method, plain, body)]
    found.append((method, asked(route, execution_id=run)[1], body))
    found += [(method, f"{plain}?{item.name}={coded}", b"{}") for item in route.declared.query]
    return found


async def test_no_text_is_ever_read_as_sql(postgres_url: str, caplog) -> None:
    caplog.set_level(logging.CRITICAL)
    admin = await asyncpg.connect(postgres_url)
    try:
        sealing = Wallet(LocalKek(ENCRYPTION_KEY), SystemClock())
        async with server(postgres_url, 1, wallet=sealing) as r:
            run = await r.start(ONE_STEP)
            before = await admin.fetchrow(COUNTS)
            wrong = []
            for route in r.server.asgi.routes:
                for text in TEXTS:
                    for method, path, body in requests(route, run, text):
                        told = await sent(r.server.asgi, method, path, NOBODY, body)
                        if told.status >= 500 and told.code != "draining":
                            wrong.append((method, path[:100], body[:80], told.code))
            assert wrong == []
            after = await admin.fetchrow(COUNTS)
            assert after["tables"] == before["tables"]
            assert after["events"] >= before["events"]
            assert (await r.client.status(run)).last_seq > 0
    finally:
        await admin.close()
