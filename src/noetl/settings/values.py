"""What the text of a setting may be: each reader gives the value, or says what it has to be."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PORTS: Final = (1, 65535)
POOL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
PASSWORD: Final = (12, 256)
"""How many characters a password has."""
_MOST_SLOTS: Final = 256


def text(value: str) -> str:
    """Any text."""
    return value


def password(value: str) -> str:
    """The password of a person."""
    low, high = PASSWORD
    if not low <= len(value) <= high:
        raise ValueError(f"a password of {low}..{high} characters")
    return value


def path(value: str) -> Path:
    """The name of a file or a folder."""
    return Path(value)


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number within limits."""

    def read(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", value) or not low <= int(value) <= high:
            raise ValueError(f"a whole number in {low}..{high}")
        return int(value)

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    """A number within limits, of seconds for the most part."""

    def read(value: str) -> float:
        digits = value.removesuffix("s").strip()
        if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", digits):
            raise ValueError(f"a number in {low:g}..{high:g}")
        if not low <= float(digits) <= high:
            raise ValueError(f"a number in {low:g}..{high:g}")
        return float(digits)

    return read


def choice(*known: str) -> Callable[[str], str]:
    """One of a few words."""

    def read(value: str) -> str:
        if value not in known:
            raise ValueError(" or ".join(f"`{word}`" for word in known))
        return value

    return read


def flag(value: str) -> bool:
    """Yes or no."""
    words = {"on": True, "true": True, "1": True, "yes": True}
    words |= {"off": False, "false": False, "0": False, "no": False}
    if value.lower() not in words:
        raise ValueError("`on` or `off`")
    return words[value.lower()]


def or_none(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """A value, or the word `off`."""
    return lambda value: None if value == "off" else read(value)


def port_or_auto(value: str) -> int:
    """A port; 0 stands for any that is free."""
    if value == "auto":
        return 0
    try:
        return whole(*PORTS)(value)
    except ValueError as fault:
        raise ValueError(f"{fault}, or `auto`") from fault


def share(value: str) -> float:
    """A share of a whole: `80 %` or `0.8`."""
    digits = value.removesuffix("%").strip()
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", digits):
        found = float(digits) / (100 if value.endswith("%") else 1)
        if 0 < found <= 1:
            return found
    raise ValueError("a share such as `80 %` or `0.8`")


def counts(value: str) -> dict[str, int]:
    """Names with a number each: `shared=8,system=2`."""
    found: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, _, digits = item.partition("=")
        if not name or not re.fullmatch(r"[0-9]{1,4}", digits) or name in found:
            raise ValueError("names with a number each, such as `http=8,container=2`")
        found[name.strip()] = int(digits)
    return found


def pools(value: str) -> dict[str, int]:
    """Worker pools with their slots."""
    found = counts(value)
    for name, slots in found.items():
        if not POOL.fullmatch(name) or not 1 <= slots <= _MOST_SLOTS:
            raise ValueError("pools with 1..256 slots each, such as `shared=8,system=2`")
    return found


def words(value: str) -> tuple[str, ...]:
    """A list that is separated by commas."""
    return tuple(filter(None, (part.strip() for part in value.split(","))))


def url(*schemes: str) -> Callable[[str], str]:
    """An address of one of a few schemes; several addresses are separated by commas."""

    def read(value: str) -> str:
        for item in value.split(","):
            if not item.strip().startswith(tuple(f"{scheme}://" for scheme in schemes)):
                raise ValueError("an address that starts with " + _either(schemes))
        return value

    return read


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _either(schemes: tuple[str, ...]) -> str:
    return " or ".join(f"`{scheme}://`" for scheme in schemes)


HTTP: Final = url("http", "https")
POSTGRES: Final = url("postgresql", "postgres")
NATS: Final = url("nats", "tls", "ws", "wss")
