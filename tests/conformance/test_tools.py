import tempfile

import pytest

from noetl.cli.app import main
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.registry import Parts, builtins
from tests.conformance import tools_rows
from tests.conformance.tools_rows import Rows
from tests.conformance.tools_suite import Bench, ToolsSuite
from tests.fakes.snowflake import Snowflake
from tests.servers.postgres import folder


def kinds():
    sandbox = Sandbox(level="rlimits")
    interpreters = Interpreters(sandbox, {}, spares=0)
    return sorted(builtins(Parts(interpreters=interpreters, processes=Processes(sandbox, {}))))


@pytest.fixture(params=kinds())
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def web():
    with tools_rows.web() as url:
        yield url


@pytest.fixture(scope="module")
def silent():
    with tools_rows.silent() as url:
        yield url


@pytest.fixture(scope="module")
def snowflake_server():
    server = Snowflake()
    yield server
    server.stop()


@pytest.fixture
async def bench(tmp_path, monkeypatch):
    """Every tool, with a temporary folder that nobody else uses and every child may pass."""
    with folder() as home:
        monkeypatch.setattr(tempfile, "tempdir", str(home))
        made = Bench(tmp_path)
        made.open()
        async with made.held:
            yield made
            await made.close()


@pytest.fixture
async def row(kind, bench, request):
    assert hasattr(Rows, kind), f"the kind {kind} has no row"

    def server(name):
        with pytest.MonkeyPatch.context() as own:  # which outlives the folder of this test
            own.setattr(tempfile, "tempdir", None)
            return request.getfixturevalue(name)

    return await getattr(Rows(bench, server), kind)()


@pytest.fixture
def noetl(capsys):
    def run(*words):
        assert main(words) == 0
        return capsys.readouterr().out

    return run


class TestTools(ToolsSuite):
    pass
