"""What the command line itself takes from the environment, and what its children are given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.settings.sources import environment
from noetl.settings.table import is_known, unknown_names

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
    gateway_url: str = "http://127.0.0.1:8090"
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
            gateway_url=env.get("NOETL_GATEWAY_URL") or "http://127.0.0.1:8090",
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


def process_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a process of ours is given: the settings, and what an interpreter itself needs."""
    env = environment(environ)
    kept = {name: value for name, value in env.items() if _is_passed(name)}
    return kept | child_environment(env)


def _is_passed(name: str) -> bool:
    return name in _NEEDED or name.startswith(("PYTHON", "LC_")) or is_known(name)


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
    return found + unknown_names(env)


def _positive(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit()
    return int(text) or None if is_number else None
