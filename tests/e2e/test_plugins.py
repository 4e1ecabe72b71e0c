"""A tool of a plug-in, installed beside NoETL: checked, run and refused like one of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
TOOL = '''\
"""Greets."""

from typing import ClassVar

from noetl.dsl.shape import Text, key, model, whole
from noetl.dsl.shape.reader import WORKER
from noetl.dsl.tasks.task import Task
from noetl.dsl.views import Outcome
from noetl.tools.base import Traits


@model
class Greeting(Task):
    """Greets somebody."""

    whom: str = key(Text(WORKER), "who is greeted")
    times: int = key(whole(1, 3), "how often", default=1)


class GreetTool:
    """The kind `greet`."""

    kind: ClassVar[str] = "greet"
    Config: ClassVar[type[Task]] = Greeting
    traits: ClassVar[Traits] = Traits(side_effects=False)

    async def run(self, config, ctx):
        return Outcome(data={"said": [f"hello {config.whom}"] * config.times})

    async def cancel(self, ctx):
        """Nothing to stop."""
'''
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: greeting, path: t/greeting}
workload: {whom: you}
workflow:
  - step: start
    tool: {kind: greet, whom: "{{ workload.whom }}", times: %s}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages: one good plug-in, and one that raises at its import."""
    (tmp_path / "greeting_plugin.py").write_text(TOOL, encoding="utf-8")
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no')\n", encoding="utf-8")
    about = tmp_path / "greeting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n", encoding="utf-8"
    )
    (about / "entry_points.txt").write_text(
        "[noetl.tools]\ngreet = greeting_plugin:GreetTool\nbroken = broken_plugin:Tool\n",
        encoding="utf-8",
    )
    return tmp_path


def noetl(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(site)}
    return subprocess.run(
        [str(BIN / "noetl"), *words],
        env=env,
        cwd=site,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_checked_and_run(site: Path):
    file = site / "greeting.yaml"
    file.write_text(PLAYBOOK % 2, encoding="utf-8")
    checked = noetl(site, "validate", str(file))
    assert checked.returncode == 0, checked.stderr
    done = noetl(site, "run", str(file), "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == {"said": ["hello you", "hello you"]}


def test_a_key_that_it_does_not_know_is_refused_with_its_place(site: Path):
    file = site / "greeting.yaml"
    file.write_text(PLAYBOOK % 9, encoding="utf-8")
    refused = noetl(site, "validate", str(file))
    assert refused.returncode != 0
    assert "DSL054" in refused.stdout + refused.stderr
    assert ":7:" in refused.stdout + refused.stderr


def test_without_it_the_kind_is_unknown(site: Path):
    file = site / "greeting.yaml"
    file.write_text(PLAYBOOK % 1, encoding="utf-8")
    (site / "greeting-1.0.dist-info" / "entry_points.txt").unlink()
    refused = noetl(site, "validate", str(file))
    assert "DSL050" in refused.stdout + refused.stderr
