"""The only reader of the environment: one frozen model per process, every name in one table.

The table is data, so that the models, the warnings about unknown names and the reference page
cannot disagree.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["text", "integer", "presence"]

PREFIX: Final = "NOETL_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable that some process reads."""

    name: str
    kind: Kind
    default: str
    processes: tuple[str, ...]
    meaning: str


SETTINGS: Final = (
    Setting(
        name="NOETL_OUTPUT",
        kind="text",
        default="table",
        processes=("cli",),
        meaning="Form of a command's output when `-o` is not given.",
    ),
    Setting(
        name="NO_COLOR",
        kind="presence",
        default="",
        processes=("cli",),
        meaning="Set to any value, even an empty one: no colour and no cursor movement.",
    ),
    Setting(
        name="TERM",
        kind="text",
        default="",
        processes=("cli",),
        meaning="Name of the terminal; `dumb` means the same as `NO_COLOR`.",
    ),
    Setting(
        name="COLUMNS",
        kind="integer",
        default="",
        processes=("cli",),
        meaning="Width of the output when it does not go to a terminal; 120 without it.",
    ),
    Setting(
        name="PATH",
        kind="text",
        default=os.defpath,
        processes=("cli", "worker"),
        meaning="Where children of steps look for programs.",
    ),
    Setting(
        name="LANG",
        kind="text",
        default="C.UTF-8",
        processes=("cli", "worker"),
        meaning="Language of the children of steps.",
    ),
    Setting(
        name="TZ",
        kind="text",
        default="",
        processes=("cli", "worker"),
        meaning="Time zone of the children of steps.",
    ),
)

# Kubernetes gives every pod these for every service of its namespace, ours included.
_SERVICE_NAME: Final = re.compile(
    r".*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """What the `noetl` command takes from the environment."""

    output: str = "table"
    no_color: bool = False
    term: str = ""
    columns: int | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> CliSettings:
        """Read the environment of the process, or the one that is passed."""
        env = os.environ if environ is None else environ
        return cls(
            output=env.get("NOETL_OUTPUT") or "table",
            no_color="NO_COLOR" in env,
            term=env.get("TERM", ""),
            columns=_positive(env.get("COLUMNS", "")),
        )

    @property
    def is_plain(self) -> bool:
        """Whether the environment asks for output without control sequences."""
        return self.no_color or self.term == "dumb"


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that children of steps are given of our environment: a step gets its values as inputs."""
    env = os.environ if environ is None else environ
    made = {"PATH": env.get("PATH") or os.defpath, "LANG": env.get("LANG") or "C.UTF-8"}
    return made | ({"TZ": env["TZ"]} if env.get("TZ") else {})


def variable(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """A variable that the caller of a command named, such as one that holds a credential."""
    return (os.environ if environ is None else environ).get(name)


def warnings(environ: Mapping[str, str] | None = None) -> list[str]:
    """One sentence per name that nothing reads and per value that cannot be read."""
    env = os.environ if environ is None else environ
    known = {setting.name: setting for setting in SETTINGS}
    found = []
    for name, value in sorted(env.items()):
        if name in known:
            if known[name].kind == "integer" and value and _positive(value) is None:
                found.append(f"{name} is not a whole number above zero: {value!r} is ignored.")
        elif name.startswith(PREFIX) and not _is_kubernetes_service(name, value):
            found.append(_unknown(name))
    return found


def _positive(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit()
    return int(text) or None if is_number else None


def _is_kubernetes_service(name: str, value: str) -> bool:
    return bool(_SERVICE_NAME.fullmatch(name) or _SERVICE_VALUE.match(value))


def _unknown(name: str) -> str:
    ours = [setting.name for setting in SETTINGS if setting.name.startswith(PREFIX)]
    near = get_close_matches(name, ours, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known names: {', '.join(ours)}."
    return f"{name} is not a setting of NoETL; {remedy}"
