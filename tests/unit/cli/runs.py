"""Playbooks that need no worker, and one that waits for one."""

from noetl.api.catalog import Register
from noetl.api.commands import Claim
from noetl.api.events import Report, Reports
from noetl.api.executions import Execute

HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: any, path: PATH}
workload: {n: 1}
"""
NOOP = (
    HEAD
    + """\
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop}
"""
)
WAITING = (
    HEAD
    + """\
workflow:
  - step: start
    tool: {kind: python, code: "return 1"}
"""
)
FAILING = (
    HEAD
    + """\
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: end, when: "{{ nowhere.at.all }}"}]}
  - step: end
    tool: {kind: noop}
"""
)


def document(text, path):
    """A playbook under a path."""
    return text.replace("path: PATH", f"path: {path}")


def register(served, path, text=NOOP):
    """Put a playbook into the catalog."""
    body = Register(content=document(text, path))
    return served.call(lambda client: client.register(body))


def start(served, path, text=NOOP, **more):
    """Start a playbook; its execution id."""
    register(served, path, text)
    return served.call(lambda client: client.execute(Execute(path=path, **more))).execution_id


def finish(served, execution_id, result=1):
    """Do the one command of a run, as a worker does."""

    async def work(client):
        claimed = (await client.claim(Claim(worker_id="w", pool="shared", free_slots=100))).claimed
        for command in claimed:
            if command.execution_id != execution_id:
                continue
            events = tuple(
                Report(
                    execution_id=execution_id, event_id=served.ids.new(), event_type=name,
                    step=command.node_name, command_id=command.command_id,
                    attempt=command.attempt, payload=payload,
                )
                for name, payload in (("command.started", {}), ("call.done", {"result": result}))
            )  # fmt: skip
            await client.report(Reports(worker_id="w", pool="shared", events=events))

    served.call(work)
