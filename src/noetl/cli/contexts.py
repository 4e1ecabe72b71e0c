"""Named servers: `~/.config/noetl/config.toml`, readable by its owner alone."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.cli.failures import CommandFailed
from noetl.ids import random_key
from noetl.settings import CliSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE: Final = "config.toml"
TOKENS: Final = "tokens"
EMBEDDED: Final = "embedded"
_KEYRING: Final = "keyring:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a server and its gateway are, and what holds the bearer for them."""

    server_url: str = ""
    """Empty: it is reached through its gateway alone."""
    token_file: str = ""
    is_production: bool = False
    gateway_url: str = ""
    session: str = ""
    """Where the session lies that `noetl login` began: a file, or `keyring:NAME`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All contexts and the one that is meant when none is named."""

    current: str = ""
    entries: Mapping[str, Context] = field(default_factory=dict)


def contexts_file() -> Path:
    """Where the contexts are kept."""
    return CliSettings.read().config_home.expanduser() / FILE


def read_contexts(file: Path | None = None) -> Contexts:
    """What is kept; nothing when there is no file."""
    import tomllib

    path = file or contexts_file()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = {name: Context(**entry) for name, entry in table.get("contexts", {}).items()}
        return Contexts(current=table.get("current", ""), entries=entries)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        message = f"the file of contexts {path} cannot be read: {fault}"
        raise CommandFailed("file_unreadable", message, hint="mend it or delete it") from fault


def write_context(  # noqa: PLR0913 - what a context is
    name: str,
    server_url: str,
    token_file: str,
    *,
    make_current: bool,
    gateway_url: str = "",
    file: Path | None = None,
) -> None:
    """Keep a context under its name; it has no session."""
    path = file or contexts_file()
    known = read_contexts(path)
    former = known.entries.get(name)
    is_same = former is not None and (former.server_url or former.gateway_url) == (
        server_url or gateway_url
    )
    is_production = is_same and former is not None and former.is_production
    entry = Context(
        server_url=server_url,
        token_file=token_file,
        is_production=is_production,
        gateway_url=gateway_url,
    )
    current = name if make_current or not known.current else known.current
    write_contexts(Contexts(current=current, entries={**known.entries, name: entry}), path)


def write_contexts(contexts: Contexts, file: Path | None = None) -> None:
    """Keep these contexts, 0600; a reader sees the old file or the new one."""
    path = file or contexts_file()
    lines = [f"current = {_quoted(contexts.current)}"]
    for name, entry in contexts.entries.items():
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [
            f"{key} = {_quoted(getattr(entry, key))}"
            for key in ("server_url", "gateway_url", "token_file", "session")
        ]
        lines.append(f"is_production = {'true' if entry.is_production else 'false'}")
    beside = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write("\n".join(lines) + "\n")
        beside.replace(path)
    except OSError as fault:
        message = f"the file of contexts {path} cannot be written: {fault.strerror}"
        raise CommandFailed("file_unwritable", message) from fault


def _quoted(text: str) -> str:
    """A TOML text; JSON's escapes are a part of TOML's."""
    return json.dumps(text)


def checked_name(name: str) -> str:
    """A name that files and messages can carry."""
    if not _NAME.fullmatch(name):
        message = f"`{name}` cannot be the name of a context"
        hint = "1 to 63 letters, digits, dots, dashes and underscores, a letter or digit first"
        raise CommandFailed("usage", message, hint=hint)
    return name


def checked_url(url: str, place: str = "--server-url") -> str:
    """The address of a server, without a secret in it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_plain = False
    if not is_plain or not url.isascii() or "@" in url:
        shown = "..." if "@" in url else url
        message = f"`{place} {shown}` is not the address of a server"
        raise CommandFailed("usage", message, hint="it is like https://noetl.example.org")
    return url.rstrip("/")


def store_token(name: str, token: str) -> str:
    """Keep a bearer beside the contexts, 0600; the path of its file."""
    folder = contexts_file().parent / TOKENS
    file = folder / f"{name}.{random_key()[:8]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(f"{token}\n")
    except OSError as fault:
        message = f"the token cannot be kept in {folder}: {fault.strerror}"
        raise CommandFailed("file_unwritable", message) from fault
    return str(file)


def forget_token(entry: Context) -> None:
    """Delete the token that was kept for a context, unless another one uses it."""
    others = {other.token_file for other in read_contexts().entries.values()}
    if entry.token_file not in others:
        _delete(entry.token_file)


def store_session(name: str, token: str) -> str:
    """Keep a session in the keyring of this machine, or beside the contexts; where it lies."""
    from noetl.cli import keyring

    key = f"{name}.{random_key()[:8]}"
    return f"{_KEYRING}{key}" if keyring.put(key, token) else store_token(name, token)


def session_of(entry: Context) -> str:
    """The session of a context; empty without one."""
    if not entry.session.startswith(_KEYRING):
        return contents(entry.session) if entry.session else ""
    from noetl.cli import keyring

    found = keyring.get(entry.session.removeprefix(_KEYRING))
    if found is None:
        message = "the keyring of this machine does not give the session out"
        raise CommandFailed("file_unreadable", message, hint="unlock it, or `noetl login` again")
    return found


def forget_session(entry: Context) -> None:
    """Delete the session that was kept for a context."""
    if not entry.session.startswith(_KEYRING):
        _delete(entry.session)
        return
    from noetl.cli import keyring

    keyring.delete(entry.session.removeprefix(_KEYRING))


def contents(file: str) -> str:
    """The bearer that a file holds."""
    from pathlib import Path

    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except FileNotFoundError as fault:
        message = f"there is no token file `{file}`"
        raise CommandFailed("file_not_found", message, hint="check the path") from fault
    except (OSError, ValueError) as fault:
        message = f"the token file `{file}` cannot be read"
        raise CommandFailed("file_unreadable", message, hint="check its permissions") from fault


def _delete(file: str) -> None:
    """Delete a file that we have made; one of somebody else stays."""
    from pathlib import Path

    if file and Path(file).parent == contexts_file().parent / TOKENS:
        Path(file).unlink(missing_ok=True)
