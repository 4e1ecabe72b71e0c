"""What the command line itself takes from the environment, and what its children are given."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from noetl.settings.sources import environment
from noetl.settings.table import FILES, is_known, unknown_names, unread_names
from noetl.settings.values import words

if TYPE_CHECKING:
    from collections.abc import Mapping


_NEEDED: Final = frozenset(
    {
        "HOME", "USER", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """What the `noetl` command takes from the environment."""

    output: str = "table"
    no_color: bool = False
    term: str = ""
    columns: int | None = None
    context: str = ""
    server_url: str = ""
    gateway_url: str = ""
    token: str = ""
    token_file: str = ""
    session_token: str = ""
    home: Path = Path(".noetl")
    config_home: Path = Path("~/.config/noetl")
    """Folder of the contexts; `~` is not expanded yet."""

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> CliSettings:
        """Read the environment of the process, or the one that is passed."""
        env = environment(environ)
        config_home = env.get("XDG_CONFIG_HOME") or "~/.config"
        return cls(
            output=env.get("NOETL_OUTPUT") or "table",
            no_color="NO_COLOR" in env,
            term=env.get("TERM", ""),
            columns=_positive(env.get("COLUMNS", "")),
            context=env.get("NOETL_CONTEXT", ""),
            server_url=env.get("NOETL_SERVER_URL") or env.get("NOETL_BASE_URL", ""),
            gateway_url=env.get("NOETL_GATEWAY_URL", ""),
            token=env.get("NOETL_TOKEN", ""),
            token_file=env.get("NOETL_TOKEN_FILE", ""),
            session_token=env.get("NOETL_SESSION_TOKEN", ""),
            home=Path(env.get("NOETL_HOME") or ".noetl"),
            config_home=Path(config_home) / "noetl",
        )

    @property
    def is_plain(self) -> bool:
        """Whether the environment asks for output without control sequences."""
        return self.no_color or self.term == "dumb"


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that children of steps are given of our environment: a step gets its values as inputs."""
    env = environment(environ)
    made = {"PATH": env.get("PATH") or os.defpath, "LANG": env.get("LANG") or "C.UTF-8"}
    return made | ({"TZ": env["TZ"]} if env.get("TZ") else {})


_ENDPOINT: Final = re.compile(r"NOETL_MCP_([A-Z0-9_]+)_ENDPOINT")
_PODMAN: Final = (
    "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF", "TMPDIR",
)  # fmt: skip


def podman_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What podman itself needs to find its images; its containers see none of it."""
    env = environment(environ)
    return child_environment(env) | {name: env[name] for name in _PODMAN if name in env}


_UV: Final = ("HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY",
              "https_proxy", "http_proxy", "no_proxy", "NETRC")  # fmt: skip


def uv_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What uv itself needs to reach its index; the packages that it installs see none of it."""
    env = environment(environ)
    given = {name: env[name] for name in env if name in _UV or name.startswith("UV_")}
    return child_environment(env) | given


def secret_files(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Files that secrets of ours are read from."""
    env = environment(environ)
    return tuple(Path(env[name]).absolute() for name in sorted(FILES) if env.get(name))


def sandbox_mode(environ: Mapping[str, str] | None = None) -> Literal["prefer", "require", "off"]:
    """How far code of steps is to be shut in; a word that is none counts as the usual one."""
    word = environment(environ).get("NOETL_PYTHON_SANDBOX")
    return "off" if word == "off" else "require" if word == "require" else "prefer"


def mcp_endpoints(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The addresses of MCP servers by their names, as `NOETL_MCP_<SERVER>_ENDPOINT` spells them."""
    env = environment(environ)
    return {found[1]: env[name] for name in env if (found := _ENDPOINT.fullmatch(name))}


def process_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a process of ours is given: the settings, and what an interpreter itself needs."""
    env = environment(environ)
    lifted = lifted_names(env)
    kept = {name: value for name, value in env.items() if _is_passed(name) or name in lifted}
    return kept | child_environment(env)


def lifted_names(environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """The variables that are credentials of the system pool."""
    return frozenset(words(environment(environ).get("NOETL_KEYCHAIN_ENV_VARS", "")))


def _is_passed(name: str) -> bool:
    return name in _NEEDED or name.startswith(("PYTHON", "LC_", "UV_")) or is_known(name)


def variable(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """A variable that the caller of a command named, such as one that holds a credential."""
    return environment(environ).get(name)


def warnings(environ: Mapping[str, str] | None = None) -> list[str]:
    """One sentence per name that nothing reads and per value that cannot be read."""
    env = environment(environ)
    columns = env.get("COLUMNS", "")
    found = []
    if columns and _positive(columns) is None:
        found.append(f"COLUMNS is not a whole number above zero: {columns!r} is ignored.")
    return found + unknown_names(env) + unread_names(env)


def _positive(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit()
    return int(text) or None if is_number else None
