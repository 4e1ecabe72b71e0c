"""The keyring of this machine, where the package `keyring` is installed and finds one."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, Final

SERVICE: Final = "noetl"


def put(name: str, secret: str) -> bool:
    """Keep a secret; false without a keyring that takes it."""
    found = _keyring()
    if found is None:
        return False
    try:
        found.set_password(SERVICE, name, secret)
    except Exception:  # noqa: BLE001 - a backend is a plugin that raises what it likes (D-Bus, COM, its own): the file takes the secret then
        return False
    return True


def get(name: str) -> str | None:
    """A secret; none when the keyring does not give it out."""
    found = _keyring()
    if found is None:
        return None
    try:
        secret: str | None = found.get_password(SERVICE, name)
    except Exception:  # noqa: BLE001 - as above: whoever is not given a secret signs in again
        return None
    return secret


def delete(name: str) -> None:
    """Forget a secret, if it is there."""
    found = _keyring()
    if found is None:
        return
    with suppress(Exception):  # as above: it is not there, or it stays and its session has ended
        found.delete_password(SERVICE, name)


def _keyring() -> Any:  # noqa: ANN401 - a package that may not be there
    """The package, when it has a place to keep secrets in; none otherwise."""
    try:
        found = import_module("keyring")
    except ImportError:
        return None
    try:
        is_usable = found.get_keyring().priority > 0
    except Exception:  # noqa: BLE001 - a backend that cannot be used here says so by whatever it raises
        return None
    return found if is_usable else None
