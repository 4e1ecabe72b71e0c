"""Runs as readers see them: lists, pages of logs, single events, lines."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.catalog import CatalogQuery, Register
from noetl.api.events import LogBatch, LogLine
from noetl.api.executions import Control, Execute
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.server.reading import history
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, many, rig, virtually


async def refused(call) -> tuple[int, str]:
    with pytest.raises(Refused) as refusal:
        await call
    return refusal.value.problem.status, refusal.value.code


async def got(r, path: str):
    answer = await AsgiTransport(r.server.asgi).request("GET", path)
    return answer.status, msgspec.json.decode(answer.body)


@virtually
async def test_every_reader_tells_the_same_status() -> None:
    async with rig() as r:
        runs = [await r.start(ONE_STEP, labels={"n": str(n)}) for n in range(4)]
        (work,) = await r.claim()
        await r.done(work)
        (work,) = await r.claim()
        await r.report(
            r.event(work, "command.started"),
            r.event(work, "call.error", error={"kind": "x", "code": "boom", "message": "no"}),
        )
        await r.client.cancel(runs[2], Control())
        await r.client.pause(runs[3], Control())
        wanted = ["COMPLETED", "FAILED", "CANCELLED", "PAUSED"]
        assert [await r.status(run) for run in runs] == wanted
        assert [(await r.client.status(run)).status for run in runs] == wanted
        listed = (await r.client.executions(order="asc")).items
        assert [item.status for item in listed] == wanted
        told = [await r.client.status(run) for run in runs]
        assert [item.is_terminal for item in told] == [True, True, True, False]
        assert [item.is_cancelled for item in told] == [False, False, True, False]
        assert told[1].error is not None
        assert (told[1].error["code"], listed[1].error["code"]) == ("boom", "boom")
        lean = await r.client.execution(runs[0], with_state=False)
        full = await r.client.execution(runs[0])
        assert (lean.result, lean.step_states, lean.steps["completed"]) == (full.result, {}, 1)
        assert full.step_states["start"]["status"] == "COMPLETED"
        _, check = await got(r, f"/api/executions/{runs[2]}/cancellation-check")
        assert check == {"execution_id": runs[2], "is_cancelled": True, "status": "CANCELLED"}


@virtually
async def test_a_list_is_paged_and_shows_no_run_twice_while_others_start() -> None:
    async with rig() as r:
        runs = [await r.start(ONE_STEP) for _ in range(25)]
        seen: list[str] = []
        cursor = None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = await r.client.executions(limit=10, path="demo/it", **more)
            seen += [item.execution_id for item in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            await r.start(ONE_STEP)
        assert seen == runs[::-1]
        first = await r.client.executions(limit=10, path="demo/it")
        other = r.client.executions(limit=10, path="demo/*", cursor=first.next_cursor)
        assert await refused(other) == (422, "bad_cursor")


@virtually
async def test_a_list_has_filters() -> None:
    async with rig() as r:
        first = await r.start(ONE_STEP, labels={"team": "a", "x": "1"}, execution_pool="gpu")
        await asyncio.sleep(10)
        second = await r.start(ONE_STEP, labels={"team": "b"})
        child = (
            await r.client.execute(Execute(path="demo/it", parent_execution_id=second))
        ).execution_id

        async def found(**filters) -> list[str]:
            page = await r.client.executions(order="asc", **filters)
            return [item.execution_id for item in page.items]

        assert await found(label="team:a") == [first]
        assert await found(label=["team:a", "x:2"]) == []
        assert await found(pool="gpu") == [first]
        assert await found(parent_execution_id="none") == [first, second]
        assert await found(parent_execution_id=second) == [child]
        assert await found(since="2026-01-01T01:00:05+01:00") == [second, child]
        assert await found(until="2026-01-01T00:00:05") == [first]
        assert await found(status=["running", "FAILED"]) == [first, second, child]
        assert await found(status="done") == []
        assert await found(path="demo*", version="1", created_by="local") == [first, second, child]
        assert await found(q="demo/", has_error="false", offset=2) == [child]
        children = await r.client.children(second)
        assert [item.execution_id for item in children.items] == [child]
        for filters, code in (
            ({"status": "green"}, "bad_status"),
            ({"since": "yesterday"}, "bad_time"),
            ({"offset": 5001}, "validation_failed"),
            ({"limit": 201}, "validation_failed"),
            ({"order": "up"}, "validation_failed"),
            ({"label": "x"}, "validation_failed"),
            ({"colour": "red"}, "unknown_parameter"),
            ({"path": ["a", "b"]}, "bad_value"),
            ({"catalog_id": "0x1"}, "invalid_id"),
            ({"cursor": "x"}, "bad_cursor"),
        ):
            assert await refused(r.client.executions(**filters)) == (422, code)


@virtually
async def test_a_log_is_read_from_either_end_filtered_and_lean() -> None:
    async with rig() as r:
        run = await r.start(many(30, 5))
        while await r.status(run) == "RUNNING":
            for command in await r.claim(slots=5):
                await r.done(command)
        log = (await r.client.events(run, limit=1000)).items
        assert [row["seq"] for row in log] == list(range(1, len(log) + 1))
        back: list[int] = []
        more = {}
        while True:
            page = await r.client.events(run, limit=17, order="desc", **more)
            back += [row["seq"] for row in page.items]
            if page.next_cursor is None:
                break
            more = {"cursor": page.next_cursor}
        assert back == list(range(len(log), 0, -1))
        found = await r.client.events(run, limit=1000, event_type=["call.done", "loop.*"])
        types = {row["event_type"] for row in found.items}
        assert types == {"call.done", "loop.started", "loop.done"}
        assert len(found.items) == 32
        assert {row.get("iteration") for row in log if row["event_type"] == "command.issued"} == {
            *range(30)
        }
        lean = await r.client.events(run, limit=1000, fields="lean")
        assert all("context" not in row and "result" not in row for row in lean.items)
        since = log[40]["event_id"]
        _, after = await got(r, f"/api/executions/{run}/events?since_event_id={since}&limit=1")
        assert after["items"][0]["seq"] == 42
        _, old = await got(r, f"/api/executions/{run}/events?after=41&limit=1&step=start")
        assert old["items"][0]["seq"] == 42
        for query in ("after_seq=1&since_event_id=1", "since_event_id=77", "order=up",
                      "fields=some", "limit=0", "limit=1001"):  # fmt: skip
            status, problem = await got(r, f"/api/executions/{run}/events?{query}")
            assert (status, problem["code"]) == (422, "validation_failed")


@virtually
async def test_a_filter_that_fits_little_goes_on_by_its_cursor() -> None:
    old = history.MOST_SCANNED
    history.MOST_SCANNED = history.PAGE  # type: ignore[misc]
    try:
        async with rig() as r:
            run = await r.start(many(200, 50))
            while await r.status(run) == "RUNNING":
                for command in await r.claim(slots=50):
                    await r.done(command)
            first = await r.client.events(run, event_type="playbook.completed")
            assert (first.items, first.next_cursor is None) == ((), False)
            page = await r.client.events(
                run, event_type="playbook.completed", cursor=str(first.next_cursor)
            )
            assert [row["event_type"] for row in page.items] == ["playbook.completed"]
    finally:
        history.MOST_SCANNED = old  # type: ignore[misc]


@virtually
async def test_one_event_and_its_result_are_found_by_id() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        large = {"text": "x" * 5_000_000}
        report = r.event(work, "call.done", result=large)
        await r.report(r.event(work, "command.started"), report)
        status, row = await got(r, f"/api/events/{report.event_id}")
        assert (status, row["event_type"], row["execution_id"]) == (200, "call.done", run)
        assert len(msgspec.json.encode(row)) < 4096
        assert await got(r, f"/api/events/{report.event_id}/result") == (200, large)
        status, problem = await got(r, f"/api/events/{work.command_id}/result")
        assert (status, problem["code"]) == (404, "not_found")
        assert (await got(r, "/api/events/77"))[0] == 404
        assert (await got(r, "/api/events/x"))[0] == 422


@virtually
async def test_newest_events_come_with_a_run_when_asked_for() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        _, told = await got(r, f"/api/executions/{run}?include_events=true")
        assert [row["seq"] for row in told["events"]] == list(range(1, told["last_seq"] + 1))
        _, told = await got(r, f"/api/executions/{run}")
        assert told["events"] == []


@virtually
async def test_lines_are_paged_and_filtered() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        lines = tuple(
            LogLine(
                execution_id=run, command_id="5", attempt=1, n=n, step="start",
                ts=f"2026-01-01T00:00:{n // 60:02}.{n:06}Z", text=f"line {n}",
                stream="stderr" if n % 2 else "stdout",
            )
            for n in range(900)
        )  # fmt: skip
        await r.client.log(LogBatch(entries=lines))
        seen: list[int] = []
        more = {}
        while True:
            page = await r.client.log_page(run, limit=100, stream="stderr", **more)
            seen += [line["n"] for line in page.items]
            if page.next_cursor is None:
                break
            more = {"cursor": page.next_cursor}
        assert seen == list(range(1, 900, 2))
        found = await r.client.log_page(run, q="line 77", command_id=5)
        assert [line["n"] for line in found.items] == [77, *range(770, 780)]
        assert (await r.client.log_page(run, step="other")).items == []
        late = await r.client.log_page(run, since="2026-01-01T00:00:14.5Z")
        assert [line["n"] for line in late.items] == []


@virtually
async def test_the_catalog_is_listed() -> None:
    async with rig() as r:
        for name in ("a", "b", "c"):
            text = HEAD.replace("demo/it", f"lists/{name}") + ONE_STEP
            await r.client.register(Register(content=text))
            await r.client.register(Register(content=text + "# again\n"))
        page = await r.client.catalog(CatalogQuery(path_prefix="lists/", limit=2))
        assert [(row.path, row.version) for row in page.entries] == [("lists/a", 2), ("lists/b", 2)]
        rest = await r.client.catalog(
            CatalogQuery(path_prefix="lists/", limit=2, cursor=page.next_cursor)
        )
        assert [row.path for row in rest.entries] == ["lists/c"]
        assert (rest.next_cursor, rest.entries[0].content) == (None, None)
        _, every = await got(r, "/api/catalog?versions=all&content=true&q=sts/a")
        assert [row["version"] for row in every["entries"]] == [2, 1]
        assert every["entries"][0]["content"].endswith("# again\n")
        assert (await got(r, "/api/catalog?versions=some"))[0] == 422
        assert await refused(r.client.catalog(CatalogQuery(limit=0))) == (422, "validation_failed")


@virtually
async def test_a_document_is_kept_only_as_its_writer_knows_it() -> None:
    async with rig() as r:
        made = await r.client.register(Register(content=HEAD + ONE_STEP, if_version=0))
        stale = Register(content=HEAD + TWO_STEPS, if_version=7)
        assert await refused(r.client.register(stale)) == (409, "version_conflict")
        await r.client.register(Register(content=HEAD + TWO_STEPS, if_version=made.version))
        packed = Register(content="not base64", encoding="base64")
        assert await refused(r.client.register(packed)) == (422, "validation_failed")
        large = Register(content=HEAD + "# " + "x" * (1024 * 1024))
        assert await refused(r.client.register(large)) == (413, "body_too_large")
        found = await AsgiTransport(r.server.asgi).request(
            "POST", "/api/catalog/resource", b'{"path":"demo/it","version":1}'
        )
        entry = msgspec.json.decode(found.body)
        assert (entry["version"], found.headers["etag"][:1]) == (1, '"')
