"""Tags of answers: whether a caller has what he asks for."""

from __future__ import annotations


def is_known(told: str, tag: str) -> bool:
    """Whether `If-None-Match` names a tag."""
    names = [name.strip().removeprefix("W/") for name in told.split(",")]
    return "*" in names or tag in names
