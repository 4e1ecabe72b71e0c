"""Random requests, signed in and not: no answer is a failure, each is as the document says."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.local.virtual import run_virtually
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.wallet import Wallet
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.fuzz.api.attack import attack
from tests.fuzz.api.cases import UNKNOWN, operation, operations
from tests.fuzz.api.stage import SHUT, furnished, stage
from tests.servers import ENCRYPTION_KEY
from tests.unit.server.rig import Rig, virtually

IN_MEMORY = 290
IN_POSTGRES = 10
"""300 in all."""
GROUPS = 8


@pytest.fixture
def number(pytestconfig) -> int:
    """The seed of this session, which its first lines tell; `--randomly-seed=7` repeats it."""
    return int(pytestconfig.getoption("randomly_seed", 0) or 0)


@pytest.mark.parametrize("name", operations())
def test_every_answer_is_as_the_document_says(name, number):
    async def attacked():
        async with stage() as made:
            return await attack(made, name, IN_MEMORY, number)

    found, seen = run_virtually(attacked())

    assert found == [], f"seed {number}"
    assert sum(seen.values()) == IN_MEMORY


@pytest.mark.parametrize("group", range(GROUPS))
async def test_every_answer_from_postgresql_is_as_the_document_says(group, number, postgres_url):
    clock, database = SystemClock(), await Database.open(postgres_url, size=4)
    ids, store, bus = Ids(clock, 1), PostgresStore(database), MemoryBus()
    parts = ServerParts(
        store=store, bus=bus, blobs=MemoryBlobs(), clock=clock, ids=ids,
        wallet=Wallet(LocalKek(ENCRYPTION_KEY), clock), **SHUT,
    )  # fmt: skip
    found = []
    try:
        async with create_server(parts) as server:
            made = await furnished(Rig(server, store, ids, bus))
            for name in list(operations())[group::GROUPS]:
                async with asyncio.timeout(60):
                    faults, _ = await attack(made, name, IN_POSTGRES, number)
                found += faults
    finally:
        await database.close()

    assert found == [], f"seed {number}"


@virtually
async def test_every_body_refuses_a_field_that_nobody_knows() -> None:
    wrong = []
    async with stage() as made:
        for name, (method, path) in operations().items():
            if "$ref" not in _schema_of_body(name):
                continue
            for key in operation(name)["parameters"]:
                if key["in"] == "path":
                    path = path.replace(f"{{{key['name']}}}", made.names[key["name"]][0])  # noqa: PLW2901 - filled
            bearer = made.bearer(operation(name)["x-noetl-permission"])
            headers = {"authorization": f"Bearer {bearer}", "content-type": "application/json"}
            answer = await made.ask(method, path, b'{"%s": 1}' % UNKNOWN.encode(), headers)
            told = msgspec.json.decode(answer.body)
            errors = told.get("errors", [{}])
            if (answer.status, told.get("code"), errors[0].get("pointer")) != (
                422, "unknown_field", f"/{UNKNOWN}",
            ):  # fmt: skip
                wrong.append((method, path, answer.status, told.get("code"), errors))

    assert wrong == []


def _schema_of_body(name: str) -> dict[str, object]:
    content = operation(name).get("requestBody", {}).get("content", {})
    found: dict[str, object] = content.get("application/json", {}).get("schema", {})
    return found
