"""The tools of a local worker: every kind of this installation, and the children they run in."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.local.virtual import real
from noetl.settings import (
    child_environment,
    mcp_endpoints,
    podman_environment,
    sandbox_mode,
    uv_environment,
    variable,
)
from noetl.tools.container.tool import Site
from noetl.tools.http.egress import Egress
from noetl.tools.interpreter.environments import Environments
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.mcp.places import Known
from noetl.tools.registry import Parts, builtins, with_plugins

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from noetl.clock import Clock
    from noetl.tools.base import Tool

SLOTS: Final = 4 * (os.cpu_count() or 1)


class Workshop:
    """The child processes that tools of several runs share."""

    def __init__(self, interpreters: Interpreters, processes: Processes) -> None:
        self._interpreters = interpreters
        self._processes = processes

    @asynccontextmanager
    async def tools(self, folder: Path, clock: Clock) -> AsyncIterator[Mapping[str, Tool]]:
        """Tools of one run, which may read and write below a folder and reach any network."""
        parts = Parts(
            interpreters=self._interpreters,
            processes=self._processes,
            data_roots=(_whole(folder),),
            egress=Egress(mode="open"),
            mcp=Known(
                endpoints=mcp_endpoints(), url=variable("NOETL_MCP_URL") or "", stdio_allow=("*",)
            ),
            site=Site(may_run_processes=True, environ=podman_environment(), around=real),
            clock=clock,
        )
        registry = with_plugins(builtins(parts))
        try:
            yield registry.tools
        finally:
            with real():
                await registry.close()


@asynccontextmanager
async def workshop(slots: int, sandbox: Sandbox | None = None) -> AsyncIterator[Workshop]:
    """Children for so many commands at once; they end with the block."""
    sandbox = sandbox or Sandbox.detect(sandbox_mode(), home=Path.home())
    environ = child_environment()
    interpreters = Interpreters(sandbox, environ, slots=slots, spares=0, packages=_packages())
    try:
        yield Workshop(interpreters, Processes(sandbox, environ))
    finally:
        with real():
            await interpreters.close()


def _whole(folder: Path) -> Path:
    return folder.resolve()


def _packages() -> Environments | None:
    """Where packages are installed that steps ask for, if they may."""
    if variable("NOETL_PYTHON_REQUIREMENTS") != "allow":
        return None
    home = Path(variable("NOETL_HOME") or ".noetl").absolute()
    return Environments(home / "python", uv_environment())
