"""Where containers run, and where they do not."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.clock import SystemClock
from noetl.tools.base import ToolContext, ToolError, read_config
from noetl.tools.container.podman import Podman
from noetl.tools.container.tool import ContainerTool, Site
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox


async def refusal(site: Site | None = None, ctx: dict[str, Any] | None = None, **given: Any) -> str:
    tool = ContainerTool(site or Site(), Processes(Sandbox(level="rlimits"), {}), SystemClock())
    config = read_config(ContainerTool.Config, {"kind": "container", "image": "i", **given})
    about = ToolContext(
        execution_id="1", step="s", command_id="2", idempotency_key="1/s/-/1", **(ctx or {})
    )
    with pytest.raises(ToolError) as refused:
        await tool.run(config, about)
    await tool.close()
    return refused.value.code


async def test_a_place_that_is_not_allowed_is_refused() -> None:
    both = Site(namespaces=("noetl", "ml"))
    assert (
        await refusal(both, runtime="kubernetes", namespace="kube-system") == "namespace_forbidden"
    )
    assert await refusal(runtime="process", command=["true"]) == "process_runtime_off"
    allowed = Site(may_run_processes=True)
    assert await refusal(allowed, runtime="process") == "invalid_config"
    volumes = [{"name": "a", "empty_dir": {}}]
    code = await refusal(allowed, runtime="process", command=["true"], volumes=volumes)
    assert code == "invalid_config"
    env = [{"name": "A", "value_from": {"secret_name": "s", "secret_key": "k"}}]
    code = await refusal(allowed, runtime="process", command=["true"], env=env)
    assert code == "invalid_config"
    code = await refusal(allowed, {"input": {"x": "1" * 1_000_000}}, runtime="process",
                         command=["true"])  # fmt: skip
    assert code == "input_too_large"


async def test_a_machine_without_a_runtime_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert Podman.program() is None
    assert await refusal() == "no_container_runtime"
    assert await refusal(runtime="podman") == "no_container_runtime"
