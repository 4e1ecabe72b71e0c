"""The real server, engine and worker on virtual time, with tools that answer from mocks."""

import asyncio
from datetime import UTC, datetime

from noetl.clock import LoopClock
from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.parse import read
from noetl.ids import Ids
from noetl.local.launch import Job, finish, start
from noetl.local.mocks import Mocks
from noetl.local.parts import Parts
from noetl.local.run import stack
from noetl.local.virtual import run_virtually
from noetl.local.watch import Watch
from noetl.tools.noop import NoopTool
from noetl.tools.playbook import PlaybooksTool, PlaybookTool
from noetl.tools.wait import WaitTool

SUITE = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {name: t, path: t}
spec:
  file: t.yaml
  cases:
    - name: c
      mocks:
"""


def playbook(workflow, path="t/main", **more):
    lines = [f"{key}: {value}" for key, value in more.items()]
    head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: t, path: {path}}}"
    return "\n".join([head, *lines, "workflow:", *("  " + x for x in workflow.splitlines()), ""])


def mocks_of(text, folder, **more):
    lines = "".join(f"        {line}\n" for line in text.strip().splitlines())
    case = read(SUITE + lines, PlaybookTest).spec.cases[0]
    return Mocks(case.mocks, folder, **more)


class Stage:
    """One playbook, its mocks, and what happened."""

    def __init__(self, text, mocks, folder):
        self.text = text
        self.mocks = mocks
        self.folder = folder
        self.finished = None
        self.events = []

    def play(self, *, log=(), day=1, **job):
        """Run on virtual time; `day` moves the clock, for a run that goes on another day."""
        return run_virtually(self._play(log, day, job))

    async def _play(self, log, day, job):
        clock = LoopClock(asyncio.get_running_loop(), datetime(2026, 1, day, tzinfo=UTC))
        watch = Watch()
        watch.is_kept = True
        mocks = mocks_of(self.mocks, self.folder, allow=None)
        tools = (WaitTool(clock), PlaybookTool(), PlaybooksTool(), NoopTool())
        parts = Parts(
            watch=watch, folder=self.folder, clock=clock,
            tools=mocks.over({tool.kind: tool for tool in tools}),
            ids=Ids(clock, machine=day), on_worker=mocks.steps, log=log, ceiling_s=1e9,
        )  # fmt: skip
        wanted = Job(file="t.yaml", text=self.text, **job)
        async with stack(parts, self.text) as running:
            mocks.crash = running.crew.crash
            if not log:
                await start(running, wanted)
            finished = await finish(running, wanted, asyncio.Event())
        return finished, watch, mocks
