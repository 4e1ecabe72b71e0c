"""The audit: a chain of rows that nobody changes."""

from __future__ import annotations

import asyncio

from noetl.store.audit import START, AuditEntry, AuditListing, hash_of

AT = "2026-01-01T00:00:00.000001Z"


def entry(number: int, **more) -> AuditEntry:
    given = {"audit_id": str(number), "at": AT, "actor": "ann", "action": "run.cancel", **more}
    return AuditEntry(**given)


async def ids(store, **filters) -> list[str]:
    listing = AuditListing(**{"tenant_id": "default", **filters})
    return [row.audit_id for row in await store.audit.listed(listing)]


class AuditSuite:
    """Every backend must pass this."""

    async def test_rows_are_a_chain_in_the_order_of_writing(self, store):
        assert await store.audit.head() == (0, START)
        assert await store.audit.read() == []
        first = entry(7, details={"x": 1.5, "n": "a\x00b", "deep": {"list": [None, True]}})
        await store.audit.append([first, entry(3, resource="ü/100%")])
        await store.audit.append([entry(5, outcome="forbidden", source_ip="::1")])
        rows = await store.audit.read()
        assert [(row.seq, row.audit_id) for row in rows] == [(1, "7"), (2, "3"), (3, "5")]
        assert rows[0].details == first.details
        assert [row.prev_hash for row in rows] == [START, rows[0].hash, rows[1].hash]
        assert [row.hash for row in rows] == [hash_of(row, row.seq, row.prev_hash) for row in rows]
        assert await store.audit.head() == (3, rows[2].hash)
        assert [row.seq for row in await store.audit.read(1, 1)] == [2]

    async def test_an_entry_is_written_once(self, store):
        await store.audit.append([entry(1), entry(2)])
        await store.audit.append([entry(2), entry(3)])
        await store.audit.append([entry(3)])
        assert [row.audit_id for row in await store.audit.read()] == ["1", "2", "3"]

    async def test_many_writers_make_one_chain(self, store):
        await asyncio.gather(
            *(store.audit.append([entry(10 * n + m) for m in range(1, 4)]) for n in range(1, 9))
        )
        rows = await store.audit.read()
        assert [row.seq for row in rows] == list(range(1, 25))
        assert [row.prev_hash for row in rows[1:]] == [row.hash for row in rows[:-1]]

    async def test_a_list_has_filters_and_is_newest_first(self, store):
        await store.audit.append(
            [
                entry(1, action="catalog.register", resource="a/b", at="2026-01-01T00:00:00Z"),
                entry(2, actor="bob", resource="a/c", at="2026-01-02T00:00:00Z"),
                entry(3, outcome="forbidden", resource="a_b", at="2026-01-03T00:00:00Z"),
                entry(4, tenant_id="acme"),
            ]
        )
        assert await ids(store) == ["3", "2", "1"]
        assert await ids(store, tenant_id="acme") == ["4"]
        assert await ids(store, limit=1) == ["3"]
        assert await ids(store, before=3) == ["2", "1"]
        assert await ids(store, actor="bob") == ["2"]
        assert await ids(store, action="run.*") == ["3", "2"]
        assert await ids(store, action="run.") == []
        assert await ids(store, resource="a_*") == ["3"]
        assert await ids(store, outcome="forbidden") == ["3"]
        assert await ids(store, since="2026-01-02T00:00:00Z") == ["3", "2"]
        assert await ids(store, until="2026-01-02T00:00:00Z") == ["1"]
