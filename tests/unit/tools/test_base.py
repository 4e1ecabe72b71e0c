"""The contract of tools: errors, configuration, the border."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import ClassVar

import pytest

from noetl.dsl.tasks import Noop, Python
from noetl.dsl.tasks.errors import ERROR_KINDS, RETRYABLE_KINDS
from noetl.dsl.template import compile_template
from noetl.dsl.views import NeedsObject, Outcome, Reference
from noetl.telemetry.redact import Redactor
from noetl.tools import base
from noetl.tools.base import (
    Parked,
    Tool,
    ToolContext,
    ToolError,
    Traits,
    classify,
    missing_extra,
    read_config,
    run_tool,
)
from noetl.tools.noop import NoopTool


def context(**more):
    return ToolContext(
        execution_id="1", step="s", command_id="c", idempotency_key="1/s/-/1", **more
    )


class Raising:
    kind: ClassVar[str] = "raising"
    Config = Noop
    traits = Traits()

    def __init__(self, does):
        self.does = does
        self.cancels = 0

    async def run(self, config, ctx):
        return await self.does(config, ctx)

    async def cancel(self, ctx):
        del ctx
        self.cancels += 1


@pytest.mark.parametrize(
    ("fault", "kind", "code", "retryable"),
    [
        (ConnectionRefusedError("x"), "connection", "CONN_REFUSED", True),
        (ConnectionResetError("x"), "connection", "CONN_RESET", True),
        (socket.gaierror("x"), "connection", "DNS_ERROR", True),
        (ssl.SSLError("x"), "connection", "TLS_ERROR", False),
        (TimeoutError(), "timeout", "tool_timeout", True),
        (PermissionError("x"), "storage_access", "permission_denied", False),
        (OSError(errno.ENOSPC, "full"), "storage_quota", "disk_full", False),
        (MemoryError(), "limit", "memory_limit", False),
        (KeyError("x"), "internal", "internal", False),
        (asyncio.CancelledError(), "cancelled", "cancelled", False),
        (ToolError("db_deadlock", "PG_40P01", "x"), "db_deadlock", "PG_40P01", True),
        (ToolError("provider", "x", "x", retryable=True), "provider", "x", True),
    ],
)
def test_every_fault_has_a_kind_a_code_and_an_answer_to_retry(fault, kind, code, retryable):
    error = classify(fault)
    assert (error["kind"], error["code"], error["retryable"]) == (kind, code, retryable)


@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_the_one_table_decides_what_is_retryable(kind):
    assert ToolError(kind, "x", "x").as_map()["retryable"] is (kind in RETRYABLE_KINDS)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="not a kind"):
        ToolError("odd", "x", "x")


def test_a_template_fault_keeps_its_code():
    with pytest.raises(Exception, match="missing") as caught:
        compile_template("{{ missing.a.b }}").render({})
    assert classify(caught.value)["kind"] == "template"


def test_a_long_message_is_cut():
    assert len(ToolError("unknown", "x", "é" * 9000).as_map()["message"].encode()) <= 4096


def test_a_missing_extra_says_how_to_install_it():
    error = missing_extra("duckdb", "duckdb").as_map()
    assert (error["kind"], error["code"]) == ("config", "missing_extra")
    assert error["message"] == 'kind duckdb needs the extra: pip install "noetl[duckdb]"'


def test_an_unknown_key_of_a_configuration_is_named():
    with pytest.raises(ToolError) as caught:
        read_config(Python, {"kind": "python", "code": "1", "lbis": []})
    assert caught.value.code == "invalid_config"
    assert "/lbis" in caught.value.message


def test_braces_in_a_rendered_configuration_are_data():
    assert read_config(Noop, {"kind": "noop", "result": "{{ oops"}).result == "{{ oops"


def test_noop_returns_what_it_was_given():
    async def all_of():
        ctx = context()
        return [
            (await run_tool(NoopTool(), {"kind": "noop", **more}, ctx)).data
            for more in ({"result": {"a": 1}}, {"message": "m"}, {})
        ]

    assert asyncio.run(all_of()) == [{"a": 1}, "m", {"status": "ok"}]


def test_the_border_redacts_data_and_errors():
    async def data(_config, ctx):
        ctx.log("log hunter22")
        ctx.progress(250, "at hunter22")
        return Outcome(data={"x": "hunter22"})

    async def fault(_config, _ctx):
        raise ToolError("python", "x", "said hunter22", details={"traceback": "t hunter22"})

    async def both():
        seen = []
        ctx = context(
            redactor=Redactor(["hunter22"]),
            on_log=lambda *line: seen.append(line),
            on_progress=lambda *step: seen.append(step),
        )
        ok = await run_tool(Raising(data), {"kind": "raising"}, ctx)
        bad = await run_tool(Raising(fault), {"kind": "raising"}, ctx)
        return ok.data, bad.error["message"], bad.py, seen

    assert asyncio.run(both()) == (
        {"x": "***"},
        "said ***",
        {"exception": None, "traceback": "t ***"},
        [("log", "info", "log ***"), (100.0, "at ***")],
    )


def test_a_value_that_lies_elsewhere_is_loaded_before_it_is_read():
    reference = Reference(ref="noetl://x", store="kv")
    loaded = []

    async def load(wanted):
        loaded.append(wanted)

    def make():
        if not loaded:
            raise NeedsObject(reference)
        return 5

    assert asyncio.run(context(load=load).touched(make)) == 5
    loaded.clear()
    with pytest.raises(NeedsObject):
        asyncio.run(context().touched(make))


def test_a_state_is_kept_for_the_next_try_unless_it_holds_a_secret():
    kept = []
    ctx = context(redactor=Redactor(["hunter22"]), on_keep=kept.append)
    for state in ({"page": 1}, {"next": "/?token=hunter22"}, {"page": 2}):
        ctx.keep(state)
    context().keep({"page": 3})
    assert kept == [{"page": 1}, {"page": 2}]


def test_a_deadline_is_a_timeout_and_the_tool_is_told():
    async def forever(_config, _ctx):
        await asyncio.Event().wait()

    async def late():
        tool = Raising(forever)
        ctx = context(deadline=asyncio.get_running_loop().time() + 0.01)
        return (await run_tool(tool, {"kind": "raising"}, ctx)).error, tool.cancels

    error, cancels = asyncio.run(late())
    assert (error["kind"], error["code"], cancels) == ("timeout", "tool_timeout", 1)


def test_cancelling_tells_the_tool_and_goes_on():
    async def forever(_config, _ctx):
        await asyncio.Event().wait()

    async def stop():
        tool = Raising(forever)
        task = asyncio.ensure_future(run_tool(tool, {"kind": "raising"}, context()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return tool.cancels

    assert asyncio.run(stop()) == 1


@pytest.mark.parametrize("fault", [ConnectionError("the cluster is gone"), None])
def test_a_tool_that_cannot_stop_changes_nothing_of_how_its_task_ended(monkeypatch, fault):
    async def forever(*_):
        await asyncio.Event().wait()

    class Stubborn(Raising):
        async def cancel(self, ctx):
            if fault is not None:
                raise fault
            await forever(ctx)

    async def late(lines):
        note = {"on_log": lambda *line: lines.append(line)}
        ctx = context(deadline=asyncio.get_running_loop().time() + 0.01, **note)
        error = (await run_tool(Stubborn(forever), {"kind": "raising"}, ctx)).error
        task = asyncio.ensure_future(
            run_tool(Stubborn(forever), {"kind": "raising"}, context(**note))
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return error

    monkeypatch.setattr(base, "CANCEL_S", 0.01)
    lines = []
    error = asyncio.run(late(lines))
    assert (error["kind"], error["code"]) == ("timeout", "tool_timeout")
    said = str(fault) if fault else "TimeoutError"
    line = ("log", "warning", f"what the task began could not be stopped: {said}")
    assert lines == [line, line]


def test_a_parked_task_passes_as_it_is():
    parked = Parked(reason="child")

    async def park(_config, _ctx):
        return parked

    assert asyncio.run(run_tool(Raising(park), {"kind": "raising"}, context())) is parked


def test_a_tool_is_recognised_by_its_shape():
    assert isinstance(NoopTool(), Tool)
