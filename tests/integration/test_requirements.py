"""Packages that python steps ask for, installed by uv from wheels made here."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import zipfile

import pytest

from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.interpreter.environments import Environments, digest_of
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.python import PythonTool

ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8"}
CODE = "import tiny_canary, sys\nresult = [tiny_canary.VALUE, tiny_canary.__file__]"
LEVELS = [
    level
    for level, path in (("namespaces", None), ("user", "/nowhere"))
    if Sandbox.detect(path=path).level == level
] or ["rlimits"]


def wheel(folder, version, value):
    """A package with one module."""
    about = f"tiny_canary-{version}.dist-info"
    files = {
        "tiny_canary.py": f"VALUE = {value!r}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tiny-canary\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    with zipfile.ZipFile(folder / f"tiny_canary-{version}-py3-none-any.whl", "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            lines.append(f"{name},sha256={digest.rstrip(b'=').decode()},{len(text)}")
        packed.writestr(f"{about}/RECORD", "\n".join([*lines, f"{about}/RECORD,,"]) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A home, and an index that has two versions of one package."""
    wheels = tmp_path_factory.mktemp("wheels")
    wheel(wheels, "1.0", "one")
    wheel(wheels, "2.0", "two")
    home = tmp_path_factory.mktemp("home") / "noetl"
    home.mkdir(mode=0o700)
    environ = ENVIRON | {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1"}
    return home / "python", environ


def play(place, scene, level=LEVELS[0]):
    async def acted():
        path = None if level == "namespaces" else "/nowhere"
        sandbox = Sandbox.detect(hidden=(place[0].parent,), path=path)
        pool = Interpreters(sandbox, ENVIRON, spares=0, packages=Environments(*place))

        async def run(code, requirements, domain="d"):
            ctx = ToolContext(
                execution_id="7", step="s", command_id="c", idempotency_key="k", domain=domain,
                deadline=asyncio.get_running_loop().time() + 120, redactor=Redactor([]),
            )  # fmt: skip
            config = {"kind": "python", "code": code, "requirements": requirements}
            return await run_tool(PythonTool(pool), config, ctx)

        try:
            return await scene(run)
        finally:
            await pool.close()

    return asyncio.run(acted())


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_sees_the_packages_that_it_asks_for_and_no_others(place, level):
    async def scene(run):
        first, second = await asyncio.gather(
            run(CODE, ["tiny-canary==1.0"]), run(CODE, ["tiny-canary==2.0"])
        )
        without = await run(CODE, [])
        again = await run("import tiny_canary, os\nresult = [tiny_canary.VALUE, os.getuid()]",
                          ["tiny-canary == 1.0 "])  # fmt: skip
        return first, second, without, again

    first, second, without, again = play(place, scene, level)
    assert (first.error, second.error, again.error) == (None, None, None)
    assert (first.data[0], second.data[0], again.data[0]) == ("one", "two", "one")
    assert without.error["code"] == "import_error"


def test_an_environment_is_made_once_for_all_who_ask(place):
    wanted = ["tiny-canary", "tiny-canary>=2"]

    async def scene(run):
        done = await asyncio.gather(
            *(run(CODE, order, f"d{n}") for n, order in enumerate([wanted, wanted[::-1]] * 2))
        )
        return [outcome.data and outcome.data[0] for outcome in done]

    made = place[0] / digest_of(sorted(wanted)) / ".noetl-ready"
    assert play(place, scene) == ["two"] * 4
    before = made.stat().st_mtime_ns
    assert play(place, scene) == ["two"] * 4
    assert made.stat().st_mtime_ns == before


def test_what_cannot_be_installed_tells_what_uv_said(place):
    async def scene(run):
        return await run(CODE, ["tiny-canary==9.9"])

    error = play(place, scene).error
    assert (error["kind"], error["code"], error["retryable"]) == (
        "config", "requirements_failed", False,
    )  # fmt: skip
    assert "tiny-canary" in error["message"]


def test_half_an_environment_is_made_anew(place):
    half = place[0] / digest_of(["tiny-canary<2"])
    half.mkdir(parents=True)
    (half / "rubbish").write_text("x")

    async def scene(run):
        return await run(CODE, ["tiny-canary<2"])

    assert play(place, scene).data[0] == "one"
    assert not (half / "rubbish").exists()


@pytest.mark.parametrize(
    "text",
    ["--index-url=http://127.0.0.1/", "-r /etc/passwd", "./here", "/etc", "x @ file:///etc/x.whl",
     "git+https://h/x", "http://h/x.whl", "", "x @ http://h/x", "-e ."],
)  # fmt: skip
def test_what_names_no_package_is_refused(place, text):
    async def scene(run):
        return await run(CODE, [text])

    assert play(place, scene).error["code"] == "invalid_config"
