"""Tasks that wait without a slot: what they ask for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from noetl.tools.base import Parked, ToolContext, run_tool
from noetl.tools.playbook import PlaybooksTool, PlaybookTool
from noetl.tools.wait import WaitTool


class FakeClock:
    def now(self):
        return datetime(2026, 1, 31, 12, 0, tzinfo=UTC)

    def monotonic(self):
        return 0.0


def run(tool, config, **more):
    ctx = ToolContext(execution_id="1", step="s", command_id="c", idempotency_key="k", **more)
    return asyncio.run(run_tool(tool, {"kind": tool.kind, **config}, ctx))


def child(**more):
    plain = ("path", "catalog_id", "version", "pool", "return_step", "dedup_key")
    return dict.fromkeys(plain) | {"workload": {}} | more


def test_a_playbook_is_asked_for_with_the_input_of_the_task():
    config = {
        "path": "a/b", "version": 3, "return_step": "end", "pool": "p", "dedup_key": "d",
    }  # fmt: skip
    outcome = run(PlaybookTool(), config, input={"n": 1}, timeout_s=30.0)
    asked = child(
        path="a/b", version=3, return_step="end", pool="p", dedup_key="d", workload={"n": 1}
    )
    assert outcome == Parked(
        reason="child",
        request={
            "children": [asked], "many": False, "best_effort": False, "wait": True,
            "timeout_s": 30.0,
        },
    )  # fmt: skip


def test_a_playbook_may_be_left_alone():
    outcome = run(PlaybookTool(), {"catalog_id": 5, "wait": False})
    assert outcome.request == {
        "children": [child(catalog_id="5")], "many": False, "best_effort": False, "wait": False,
        "timeout_s": None,
    }  # fmt: skip


def test_several_playbooks_are_asked_for_together():
    items = [{"path": "a", "input": {"n": 1}}, {"catalog_id": "7", "version": "2"}]
    outcome = run(PlaybooksTool(), {"items": items, "best_effort": True, "pool": "p"})
    assert outcome == Parked(
        reason="child",
        request={
            "children": [
                child(path="a", pool="p", workload={"n": 1}),
                child(catalog_id="7", version="2", pool="p"),
            ],
            "many": True, "best_effort": True, "wait": True, "timeout_s": None,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "config"),
    [
        (PlaybookTool(), {}),
        (PlaybookTool(), {"path": "a", "catalog_id": 1}),
        (PlaybooksTool(), {"items": "no list"}),
        (PlaybooksTool(), {"items": [{"input": {}}]}),
    ],
)
def test_a_child_without_a_name_is_refused(tool, config):
    assert run(tool, config).error["code"] == "invalid_config"


@pytest.mark.parametrize(
    ("config", "wait_ms"),
    [
        ({"seconds": 1.5}, 1500),
        ({"seconds": "2m"}, 120_000),
        ({"seconds": 0}, 0),
        ({"seconds": 0.0001}, 1),
    ],
)
def test_a_wait_is_a_number_of_milliseconds(config, wait_ms):
    assert run(WaitTool(FakeClock()), config) == Parked(
        reason="retry", request={"wait_ms": wait_ms}
    )


@pytest.mark.parametrize(
    ("until", "utc"),
    [
        ("2026-01-31T12:00:30Z", "2026-01-31T12:00:30.000000Z"),
        ("2026-01-31T13:00:30+01:00", "2026-01-31T12:00:30.000000Z"),
        ("2020-01-31T12:00:30Z", "2020-01-31T12:00:30.000000Z"),
    ],
)
def test_a_wait_until_a_time_leaves_the_clock_to_the_server(until, utc):
    waits = run(WaitTool(FakeClock()), {"until": until})
    assert waits == Parked(reason="retry", request={"until": utc})


def test_a_wait_for_an_answer_has_the_limit_of_the_task():
    waits = run(WaitTool(FakeClock()), {"callback": True}, timeout_s=60.0)
    assert waits == Parked(reason="callback", request={"timeout_s": 60.0})
    assert run(WaitTool(FakeClock()), {"callback": True}).request == {"timeout_s": None}


@pytest.mark.parametrize(
    "config",
    [{}, {"callback": False}, {"until": "soon"}, {"until": "2026-01-31T12:00:00"},
     {"seconds": 1e12}, {"seconds": 1, "callback": True}, {"seconds": -1}],
)  # fmt: skip
def test_a_wait_without_an_end_is_refused(config):
    assert run(WaitTool(FakeClock()), config).error["code"] == "invalid_config"
