"""What commands take from the embedded stack of a folder, and how settings are shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.cli.output import Output
    from noetl.local.embedded.record import Stack


def running_stack(home: Path) -> Stack | None:
    """The stack that runs in a folder."""
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.record import read

    stack = read(Home(home).record)
    return stack if stack is not None and stack.supervisor.is_alive else None


def database_url_of(out: Output, given: str | None, home: Path | None = None) -> str | None:
    """The database that an option or a setting names, else the one of the embedded stack."""
    from noetl.settings import DatabaseSettings

    settings = DatabaseSettings.read(database_url=given)
    if settings.database_url and (given is not None or home is None):
        return settings.database_url
    stack = running_stack(home or out.settings.home)
    if stack is None:
        return None
    return Path(stack.database_url_file).read_text(encoding="utf-8").strip()


def bus_url_of(out: Output, home: Path | None = None) -> str | None:
    """The broker of the embedded stack, else the one that a setting names."""
    from noetl.local.embedded.home import Home
    from noetl.settings import variable

    stack = running_stack(home or out.settings.home)
    if stack is None:
        return variable("NOETL_NATS_URL") or variable("NATS_URL")
    file = Home(Path(stack.home)).secret_file("nats.url")
    return file.read_text(encoding="utf-8").strip()


def told_by_stack(home: Path, pool: str | None = None) -> dict[str, str]:
    """Settings by which one more process joins the stack of a folder; none when none runs.

    A pool that the stack has not started itself is joined with the token of its admin.
    """
    from noetl.local.embedded.home import Home

    stack = running_stack(home)
    if stack is None:
        return {}
    secrets = Home(Path(stack.home)).folder("secrets")
    told = {
        "NOETL_NATS_URL_FILE": secrets / "nats.url",
        "NOETL_INTERNAL_API_TOKEN_FILE": secrets / "internal.token",
    }
    if pool is None:
        told["NOETL_DATABASE_URL_FILE"] = secrets / "database.url"
        told["NOETL_ENCRYPTION_KEY_FILE"] = secrets / "encryption.key"
        return {name: str(file) for name, file in told.items()}
    own = secrets / f"worker-{pool}.token"
    if pool != "system":
        told["NOETL_WORKER_TOKEN_FILE"] = own if own.exists() else Path(stack.token_file)
    return {name: str(file) for name, file in told.items()} | {"NOETL_SERVER_URL": stack.url}


def show_settings(out: Output, shown: dict[str, Any]) -> None:
    """Settings in force, secrets masked."""
    from noetl.cli.text import columns

    plain = {name: _plain(value) for name, value in shown.items()}
    if out.is_structured:
        out.document(plain)
    else:
        rows = [(name, "-" if value in {None, ""} else str(value)) for name, value in _flat(plain)]
        out.write(columns(rows, out.width))


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _flat(shown: dict[str, Any]) -> list[tuple[str, Any]]:
    """Lists and maps on one line."""
    flat = []
    for name, value in shown.items():
        if isinstance(value, dict):
            flat.append((name, ",".join(f"{key}={item}" for key, item in value.items())))
        elif isinstance(value, list):
            flat.append((name, ",".join(map(str, value))))
        else:
            flat.append((name, value))
    return flat
