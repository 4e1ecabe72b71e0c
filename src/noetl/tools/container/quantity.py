"""Amounts of processors and memory, as Kubernetes writes them."""

from __future__ import annotations

import re
from typing import Final

from noetl.tools.base import ToolError

_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?")
_UNITS: Final = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def amount(value: object, where: str) -> float:
    """A quantity such as `500m`, `2` or `1.5Gi` as a number."""
    found = None if isinstance(value, bool) else _FORM.fullmatch(str(value).strip())
    number = 0.0 if found is None else float(found[1]) * _UNITS[found[2] or ""]
    if number <= 0:
        message = f"{where}: `{value}` is no amount such as `500m`, `2` or `1Gi`"
        raise ToolError("config", "invalid_config", message)
    return number
