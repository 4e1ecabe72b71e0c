"""What the pipeline renders of a task is what its tool accepts."""

from __future__ import annotations

import pytest

from noetl.dsl.tasks import KINDS
from noetl.engine.config import config_of
from noetl.tools.base import read_config

TASKS = [
    {"kind": "http", "url": "http://a/", "timeout": {"connect": 1, "read": "2s"}},
    {"kind": "http", "url": "http://a/", "paginate": {"next": "{{ page.body.next }}",
                                                      "until": "page.number == 2"}},
    {"kind": "duckdb", "command": "select 1", "memory_limit": "2GB", "export": {"format": "csv"}},
    {"kind": "sqlite", "path": "a.db", "commands": ["select 1"]},
    {"kind": "artifact", "action": "list"},
    {"kind": "result_fetch", "ref": "noetl://x", "rows": {"limit": 1}},
    {"kind": "playbook", "path": "a/b"},
    {"kind": "playbooks", "items": [{"path": "a", "input": {"n": 1}}, {"catalog_id": 4}]},
    {"kind": "wait", "seconds": 5},
    {"kind": "wait", "until": "2026-01-01T00:00:00Z"},
    {"kind": "wait", "callback": True},
    {"kind": "noop", "result": 1},
    {"kind": "shell", "command": "true"},
    {"kind": "python", "code": "1"},
]  # fmt: skip


@pytest.mark.parametrize("written", TASKS, ids=lambda task: task["kind"])
def test_a_rendered_task_reads_as_itself(written):
    task = read_config(KINDS[written["kind"]], written)
    rendered = config_of(task, {})
    assert read_config(type(task), {"kind": task.kind, **rendered}) == task
