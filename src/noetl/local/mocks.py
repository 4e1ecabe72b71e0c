"""What stands in for tools in a test: the same contract, answers from the case."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, cast

from noetl.dsl.tasks import KINDS
from noetl.dsl.template import TemplateFailure, compile_condition, is_true
from noetl.dsl.views import Outcome
from noetl.local.virtual import real
from noetl.tools.base import Tool, ToolError, Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from noetl.dsl.documents.testcase import Answer, Failing, Mock
    from noetl.tools.base import Parked, ToolContext

# Without effects outside of the run, or (a child, a wait) run by the engine itself.
HARMLESS: Final = frozenset({"python", "noop", "wait", "playbook", "playbooks"})
_IN_MEMORY: Final = ":memory:"


class Mocks:
    """The mocks of one case, and what was called."""

    def __init__(
        self,
        mocks: Sequence[Mock],
        folder: Path,
        *,
        allow: frozenset[str] | None = frozenset(),
        crash: Callable[[], None] | None = None,
    ) -> None:
        """With `allow` none, every tool that is not mocked runs."""
        self.calls: dict[str, int] = {}
        self.unmocked: dict[str, str] = {}
        self._mocks = mocks
        self._folder = folder
        self._allow = allow
        self.crash = crash
        self._given = [0] * len(mocks)

    @property
    def steps(self) -> frozenset[str]:
        """The steps of which something is mocked."""
        return frozenset(mock.step for mock in self._mocks)

    @property
    def may_crash(self) -> bool:
        """Whether some call loses the worker."""
        answers = (answer for mock in self._mocks for answer in (mock, *mock.sequence))
        return any(answer.crash for answer in answers)

    def over(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """A stand-in for every kind: it answers from the mocks or, where it may, really runs."""
        kinds = {kind: tools.get(kind) for kind in (*KINDS, *tools)}
        return {kind: cast("Tool", _Mocked(kind, tool, self)) for kind, tool in kinds.items()}

    def may_run(self, kind: str, config: object) -> bool:
        """Whether a tool that is not mocked may really run."""
        if self._allow is None or kind in HARMLESS or kind in self._allow:
            return True
        return kind == "duckdb" and getattr(config, "database", "") == _IN_MEMORY

    def answer(self, ctx: ToolContext) -> Answer | None:
        """What the case says about this call; none when it says nothing."""
        for number, mock in enumerate(self._mocks):
            if self._fits(mock, ctx):
                at = self._given[number]
                self._given[number] += 1
                if mock.sequence:
                    return mock.sequence[min(at, len(mock.sequence) - 1)]
                return mock
        return None

    def data_of(self, answer: Answer) -> Any:  # noqa: ANN401 - data of the author's own
        """The data that a mock returns."""
        if answer.return_file is None:
            return json.loads(json.dumps(answer.return_))
        path = self._folder / answer.return_file
        try:
            text = path.read_bytes()
        except OSError as fault:
            raise ToolError("config", "mock_file", f"{path}: {fault.strerror}") from fault
        try:
            return json.loads(text)
        except ValueError:
            return text.decode("utf-8", "replace")

    @staticmethod
    def _fits(mock: Mock, ctx: ToolContext) -> bool:
        if mock.step != ctx.step or mock.task not in {None, ctx.task}:
            return False
        if mock.index is not None and mock.index != _index(ctx):
            return False
        if mock.when is None or isinstance(mock.when, bool):
            return mock.when is not False
        # Code is told of `ctx` under another name.
        named = {"ctx": ctx.scope["variables"]} if "variables" in ctx.scope else {}
        scope = {**named, **dict(ctx.scope), "input": ctx.input, **ctx.input}
        try:
            return is_true(compile_condition(mock.when).render(scope))
        except TemplateFailure as fault:
            message = f"`when` of a mock of `{mock.step}`: {fault.message}"
            raise ToolError("template", fault.code, message) from fault


class _Mocked:
    """One kind of tool under test."""

    def __init__(self, kind: str, tool: Tool | None, mocks: Mocks) -> None:
        self.kind = kind
        self.Config = KINDS[kind] if tool is None else tool.Config
        self.traits = Traits(side_effects=False) if tool is None else tool.traits
        self._tool = tool
        self._mocks = mocks

    async def run(self, config: Any, ctx: ToolContext) -> Outcome | Parked:  # noqa: ANN401 - as Tool declares it
        """Answer from the mocks, or run the tool for real."""
        mocks = self._mocks
        mocks.calls[ctx.step] = mocks.calls.get(ctx.step, 0) + 1
        answer = mocks.answer(ctx)
        if answer is not None:
            return await self._answered(answer)
        if self._tool is None or not mocks.may_run(self.kind, config):
            mocks.unmocked.setdefault(ctx.step, self.kind)
            message = f"`{ctx.step}` calls `{self.kind}`, and no mock answers"
            raise ToolError("config", "unmocked_tool", message)
        with real():
            return await self._tool.run(config, ctx)

    async def cancel(self, ctx: ToolContext) -> None:
        """Stop the real tool."""
        if self._tool is not None:
            with real():
                await self._tool.cancel(ctx)

    async def _answered(self, answer: Answer) -> Outcome:
        await asyncio.sleep(answer.delay)
        if answer.crash and self._mocks.crash is not None:
            self._mocks.crash()
        if answer.hang or answer.crash:
            await asyncio.Event().wait()
        if answer.raise_ is not None:
            return _failed(answer.raise_)
        data = self._mocks.data_of(answer)
        http = None
        if self.kind == "http" and isinstance(data, dict):
            http = {"status": data.get("status_code"), "headers": data.get("headers") or {}}
        return Outcome(data=data, http=http)


def _failed(failing: Failing) -> Outcome:
    error = ToolError(
        failing.kind,
        failing.code or failing.kind,
        failing.message or f"mocked {failing.kind}",
        retryable=failing.retryable,
        status_code=failing.status,
        retry_after_s=failing.retry_after_s,
        details=failing.details or None,
    )
    http = None if failing.status is None else {"status": failing.status, "headers": {}}
    return Outcome(status="error", error=error.as_map(), http=http)


def _index(ctx: ToolContext) -> int | None:
    """The iteration that a call belongs to: `<execution>/<step>/<place>/<visit>` names it."""
    place = ctx.idempotency_key.split("/")[2].rpartition(".")[2]
    return int(place) if place.isdigit() else None
