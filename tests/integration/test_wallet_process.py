"""The wallet of real server processes: a rotation that is killed, a key service that is away."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from noetl.clock import SystemClock
from noetl.secrets.kek.local import LocalKek, make_key
from noetl.secrets.sealed import KeyPair
from noetl.secrets.wallet import Wallet, about, version_of
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from noetl.store.secrets import CredentialRow
from tests.fakes.vault import TOKEN as VAULT_TOKEN
from tests.fakes.vault import Vault
from tests.integration.test_server_process import Process, seeded, server
from tests.servers import ENCRYPTION_KEY

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 3_000
BATCH = 50
HALF = ROWS // 2
HOLD = "select 1 from noetl.credential where id = $1 for update"
WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and query like '%update noetl.credential%'
    and state = 'active' and pid <> pg_backend_pid()"""
LATE_S = 60
AT = "2026-01-01T00:00:00.000000Z"
INNER = {"authorization": "Bearer inner-token"}
ROTATE = "/api/internal/wallet/rotate-kek"
PLAYBOOK = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: plain, path: plain}\n"
    'workflow:\n  - {step: start, tool: {kind: python, code: "return 1"}}\n'
)


def secret(number: int) -> dict[str, str]:
    return {"value": f"rotated-canary-{number}"}


async def filled(store: PostgresStore, keys: str) -> None:
    """Some thousand credentials, each sealed in its own row."""
    old = Wallet(LocalKek(keys), SystemClock())

    async def put(number: int) -> None:
        sealed = await old.seal(
            msgspec.json.encode(secret(number)), about("credential", "default", str(number))
        )
        await store.credentials.put(
            CredentialRow(
                id=str(number), tenant_id="default", name=f"c{number}", type="secret",
                created_at=AT, updated_at=AT, data_encrypted=sealed,
            )
        )  # fmt: skip

    for start in range(1, ROWS + 1, 100):
        await asyncio.gather(*map(put, range(start, start + 100)))


async def test_a_rotation_whose_server_is_killed_is_finished_by_another(postgres_url: str) -> None:
    new = make_key()
    both = f"{new},{ENCRYPTION_KEY}"
    admin = await seeded(postgres_url, "admin")
    database = await Database.open(postgres_url, size=4)
    store = PostgresStore(database)
    try:
        await filled(store, ENCRYPTION_KEY)

        async def rotated() -> int:
            page = await store.records.page("credential", limit=ROWS)
            fresh = await Wallet(LocalKek(new), SystemClock()).current()
            assert len(page) == ROWS
            return sum(version_of(one.record) == fresh for one in page)

        async with (
            server(postgres_url, NOETL_ENCRYPTION_KEY=both) as dying,
            server(postgres_url, NOETL_ENCRYPTION_KEY=both) as other,
        ):
            await asyncio.gather(
                dying.until("the server listens"), other.until("the server listens")
            )
            reading = asyncio.create_task(_read_on(other.url, admin))
            await _killed_halfway(dying, database, rotated)
            half = await rotated()
            assert half in {HALF, HALF + BATCH}  # a batch is written whole or not at all
            async with httpx.AsyncClient(base_url=other.url, timeout=LATE_S) as http:
                rest = (await http.post(ROTATE, json={"batch_size": 500}, headers=INNER)).json()
            assert rest["is_done"], rest
            assert rest["tables"]["credential"]["rewrapped"] == ROWS - half
            assert await rotated() == ROWS
            reading.cancel()
            (fault,) = await asyncio.gather(reading, return_exceptions=True)
            assert isinstance(fault, asyncio.CancelledError), fault
        only = Wallet(LocalKek(new), SystemClock())
        for one in await store.records.page("credential", limit=ROWS):
            opened = await only.open(one.record, about("credential", "default", one.key))
            assert json.loads(opened) == secret(int(one.key))
    finally:
        await database.close()


async def _killed_halfway(dying: Process, database: Database, rotated: Any) -> None:
    """Let a server begin a rotation, and kill it in the midst."""
    async with (
        httpx.AsyncClient(base_url=dying.url, timeout=LATE_S) as http,
        database.connection() as held,
        held.transaction(),
    ):
        # The batch of this row waits for us, so the rotation stands still halfway.
        await held.execute(HOLD, HALF + BATCH // 2)
        asking = asyncio.create_task(http.post(ROTATE, json={"batch_size": BATCH}, headers=INNER))
        async with asyncio.timeout(LATE_S):
            while await rotated() < HALF:  # noqa: ASYNC110 - another process does it
                await asyncio.sleep(0.05)
        dying.process.send_signal(signal.SIGKILL)
        await dying.process.wait()
        await asyncio.gather(asking, return_exceptions=True)
    async with asyncio.timeout(LATE_S):
        while await database.fetchval(WAITING):  # noqa: ASYNC110 - its session ends
            await asyncio.sleep(0.05)


async def _read_on(url: str, admin: str) -> None:
    """Read one credential after the other, until this is cancelled."""
    headers = {"authorization": f"Bearer {admin}"}
    async with httpx.AsyncClient(base_url=url, timeout=LATE_S) as http:
        number = 0
        while True:
            number = number % ROWS + 97
            number = min(number, ROWS)
            found = await http.get(
                f"/api/credentials/c{number}", params={"include_data": "true"}, headers=headers
            )
            assert found.json()["data"] == secret(number), found.text


async def test_a_server_starts_while_its_key_service_is_away(postgres_url: str) -> None:
    token = await seeded(postgres_url, "admin", "worker")
    bearer = {"authorization": f"Bearer {token}"}
    silent = socket.create_server(("127.0.0.1", 0))
    nobody = f"http://127.0.0.1:{silent.getsockname()[1]}"
    away = {
        "NOETL_KMS_PROVIDER": "vault", "NOETL_KMS_KEY": "transit/noetl", "VAULT_ADDR": nobody,
        "VAULT_TOKEN": "hvs.canary-of-a-start-1", "NOETL_ENCRYPTION_KEY": "",
    }  # fmt: skip
    async with server(postgres_url, **away) as running:
        await running.until("the server listens")
        async with httpx.AsyncClient(base_url=running.url, headers=bearer, timeout=LATE_S) as http:
            answer = await http.post("/api/catalog/register", json={"content": PLAYBOOK})
            assert answer.status_code == 201, answer.text
            run = (await http.post("/api/execute", json={"path": "plain"})).json()["execution_id"]
            claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
            (command,) = (await http.post("/api/commands/claim", json=claim)).json()["claimed"]
            assert command["execution_id"] == run
            silent.close()  # who is asked from now on is refused, and need not wait
            put = {"name": "c", "type": "secret", "data": {"value": "never-kept-1"}}
            refused = await http.post("/api/credentials", json=put)
            assert (refused.status_code, refused.json()["code"]) == (503, "kek_unavailable")
            assert "canary" not in refused.text
            assert "never-kept" not in refused.text
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert "canary" not in str(running.lines)


async def test_a_key_service_in_the_same_network_is_reached_though_authors_are_kept_out(
    postgres_url: str,
) -> None:
    token = await seeded(postgres_url, "admin", "worker")
    bearer = {"authorization": f"Bearer {token}"}
    vault = Vault()
    near = {
        "NOETL_KMS_PROVIDER": "vault", "NOETL_KMS_KEY": "transit/noetl", "VAULT_ADDR": vault.url,
        "VAULT_TOKEN": VAULT_TOKEN, "NOETL_ENCRYPTION_KEY": "",
    }  # fmt: skip
    try:
        async with server(postgres_url, **near) as running:
            await running.until("the server listens")
            async with httpx.AsyncClient(
                base_url=running.url, headers=bearer, timeout=LATE_S
            ) as http:
                put = {"name": "c", "type": "secret", "data": {"value": "kept-by-vault-1"}}
                assert (await http.post("/api/credentials", json=put)).status_code == 200
                shown = await http.get("/api/credentials/c", params={"include_data": "true"})
                assert shown.json()["data"] == put["data"]
                asked = len(vault.asked)
                far = {
                    "name": "far", "type": "bearer",
                    "from": {"vault": "kv/x", "auth": "near"},
                }  # fmt: skip
                way = {"name": "near", "type": "vault", "data": {"url": vault.url, "token": "t-1"}}
                for body in (way, far):
                    assert (await http.post("/api/credentials", json=body)).status_code == 200
                before = len(vault.asked)
                assert before > asked
                refused = await _delivered(http, "far")
                assert refused.status_code == 422, refused.text
                assert "egress" in refused.text or "refused" in refused.text
                assert all("/kv/" not in one.path for one in vault.asked)
    finally:
        vault.stop()


async def test_a_wallet_moves_from_vault_to_another_provider_while_its_token_is_replaced(
    postgres_url: str, tmp_path: Path
) -> None:
    bearer = {"authorization": f"Bearer {await seeded(postgres_url, 'admin')}"}
    file = tmp_path / "token"
    file.write_text(VAULT_TOKEN, encoding="utf-8")
    vault = Vault()
    reach = {"VAULT_ADDR": vault.url, "VAULT_TOKEN_FILE": str(file)}
    of_vault = {"NOETL_KMS_PROVIDER": "vault", "NOETL_KMS_KEY": "noetl", **reach}
    previous = {
        "NOETL_KMS_PROVIDER_PREVIOUS": "vault", "NOETL_KMS_KEY_PREVIOUS": "noetl", **reach,
    }  # fmt: skip

    async def held(running: Process, put: int | None = None) -> list[Any]:
        """Put one credential, if any, and read those that there are."""
        await running.until("the server listens")
        async with httpx.AsyncClient(base_url=running.url, headers=bearer, timeout=LATE_S) as http:
            if put is not None:
                body = {"name": f"c{put}", "type": "secret", "data": secret(put)}
                assert (await http.post("/api/credentials", json=body)).status_code == 200
            names = ("c1", "c2")
            asked = [
                await http.get(f"/api/credentials/{name}", params={"include_data": "true"})
                for name in names
            ]
            return [one.json().get("data", one.status_code) for one in asked]

    try:
        async with server(postgres_url, **of_vault, NOETL_ENCRYPTION_KEY="") as old:
            assert await held(old, put=1) == [secret(1), 404]
        async with server(postgres_url, **previous) as moving:
            vault.token = "hvs.canary-renewed-2"  # noqa: S105 - of a stand-in
            file.write_text(vault.token, encoding="utf-8")
            assert await held(moving, put=2) == [secret(1), secret(2)]
            async with httpx.AsyncClient(base_url=moving.url, timeout=LATE_S) as http:
                done = (await http.post(ROTATE, json={}, headers=INNER)).json()
            told = done["tables"]["credential"]
            assert (done["is_done"], told["rewrapped"], told["skipped"]) == (True, 1, 1)
        asked = len(vault.asked)
        async with server(postgres_url) as after:
            assert await held(after) == [secret(1), secret(2)]
        assert len(vault.asked) == asked
    finally:
        vault.stop()


async def _delivered(http: httpx.AsyncClient, name: str) -> httpx.Response:
    """What a worker is answered that asks for a credential."""
    text = PLAYBOOK.replace("plain", "uses").replace(
        'kind: python, code: "return 1"', f"kind: http, auth: {name}, url: 'http://x'"
    )
    await http.post("/api/catalog/register", json={"content": text})
    key = {"pool": "shared", "worker_public_key": KeyPair.make().public}
    await http.post("/api/worker/pool/register", json={"name": "w", "runtime": key})
    run = (await http.post("/api/execute", json={"path": "uses"})).json()["execution_id"]
    claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
    (command,) = (await http.post("/api/commands/claim", json=claim)).json()["claimed"]
    asked = {"worker_id": "w", "execution_id": run, "command_id": command["command_id"]}
    return await http.get(f"/api/credentials/{name}/sealed", params=asked)
