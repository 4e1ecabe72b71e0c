"""Scripts as containers: what the kind `script` asks for when it names a `job`."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.tasks import Container
from noetl.tools.base import ToolError, read_config
from noetl.tools.container.job import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IMAGE: Final = "python:3.12-slim"
FILE: Final = "script"
_PACKAGES: Final = "/tmp/packages"  # noqa: S108 - the container's own
_INSTALL: Final = (
    f'pip install --quiet --no-cache-dir --target {_PACKAGES} -r {FOLDER}/packages && exec "$@"'
)
_BLOCK: Final = re.compile(r"^# /// script\s*$(?P<text>(?:\n#.*)*?)\n# ///\s*$", re.MULTILINE)


def container_request(
    text: str,
    job: Mapping[str, Any],
    *,
    interpreter: Sequence[str] = ("python",),
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> tuple[Container, dict[str, bytes]]:
    """The container that runs a script, and its files, for `ContainerTool.run`.

    `job` is what the author wrote: keys of the kind `container`, and `install_dependencies`, a list
    of packages, or true for those that the script itself names (PEP 723).
    """
    asked = {key: value for key, value in job.items() if key != "install_dependencies"}
    for key in ("command", "args", "kind", "input"):
        if key in asked:
            raise ToolError("config", "invalid_config", f"/job/{key}: the script decides that")
    packages = _packages(job.get("install_dependencies"), text)
    command = [*interpreter, f"{FOLDER}/{FILE}", *arguments]
    variables: dict[str, Any] = dict(env or {})
    if packages:
        command = ["sh", "-c", _INSTALL, "sh", *command]
        variables |= {"PYTHONPATH": _PACKAGES, "HOME": "/tmp"}  # noqa: S108 - as above
    given = {"image": IMAGE, **asked, "kind": "container", "command": command}
    own = asked.get("env")
    if isinstance(own, list):
        given["env"] = [*({"name": k, "value": v} for k, v in variables.items()), *own]
    else:
        given["env"] = {**variables, **(own or {})}
    config: Container = read_config(Container, given)
    return config, {FILE: text.encode()} | ({"packages": _lines(packages)} if packages else {})


def _lines(packages: Sequence[str]) -> bytes:
    return ("\n".join(packages) + "\n").encode()


def _packages(asked: object, text: str) -> tuple[str, ...]:
    if asked is None or asked is False:
        return ()
    found = _named(text) if asked is True else asked
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        message = "/job/install_dependencies: a list of packages, or true, is needed"
        raise ToolError("config", "invalid_config", message)
    return tuple(found)


def _named(text: str) -> object:
    """The packages that a script names in its first comment."""
    block = _BLOCK.search(text.replace("\r\n", "\n"))
    if block is None:
        return []
    lines = (line[2:] if line.startswith("# ") else line[1:] for line in block["text"].split("\n"))
    try:
        return tomllib.loads("\n".join(lines)).get("dependencies", [])
    except tomllib.TOMLDecodeError as fault:
        raise ToolError("config", "invalid_config", f"/script: {fault}") from None
