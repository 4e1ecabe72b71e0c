"""A command line run in this process, with an environment of its own."""

import io
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from noetl.cli.app import main
from tests.servers.memory import MemoryServer

EXAMPLES = Path(__file__).parents[3] / "examples"

MISSPELT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: orders, path: etl/orders}
workflow:
  - step: start
    loop:
      in: [1, 2]
      iterator: row
      itertor: row
    tool: {kind: noop}
"""
OLDER = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: orders, path: etl/orders}
workflow:
  - step: start
    tool: {kind: noop}
    next: end  # on to the end
  - step: end
    tool: {kind: noop}
"""


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch, tmp_path):
    for name in (
        "NOETL_OUTPUT", "NO_COLOR", "TERM", "COLUMNS", "NOETL_CONTEXT", "NOETL_SERVER_URL",
        "NOETL_BASE_URL", "NOETL_TOKEN", "NOETL_TOKEN_FILE", "NOETL_SESSION_TOKEN", "NOETL_HOME",
        "NOETL_GATEWAY_URL",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def noetl(capsys, monkeypatch):
    def run(*words, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(words)
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture(scope="module")
def served():
    """A server on a real socket, which has no worker: playbooks of noops run on it alone."""
    with MemoryServer() as server:
        yield server


@pytest.fixture
def remote(noetl, served, monkeypatch):
    """A command line that means this server."""
    monkeypatch.setenv("NOETL_SERVER_URL", served.url)
    return noetl


@pytest.fixture
def misspelt(tmp_path):
    (tmp_path / "orders.yaml").write_text(MISSPELT)
    return "orders.yaml"


@pytest.fixture
def older(tmp_path):
    (tmp_path / "older.yaml").write_text(OLDER)
    return "older.yaml"


@pytest.fixture
def hello(tmp_path):
    shutil.copy(EXAMPLES / "hello.yaml", tmp_path)
    return "hello.yaml"
