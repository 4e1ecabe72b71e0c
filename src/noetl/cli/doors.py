"""The gateway of a command that signs in or out, and the context that keeps the session."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from noetl.api.sign_in_client import SignInClient
from noetl.api.sockets import SocketTransport
from noetl.cli import contexts
from noetl.cli.contexts import Context
from noetl.cli.remote import Patient, known_to, place_of
from noetl.cli.where import Where

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.cli.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A gateway, and the context under whose name a session of it is kept."""

    url: str
    name: str
    entry: Context
    is_new: bool

    def keep(self, token: str) -> None:
        """Keep a session; the one before is forgotten. A new context becomes the current one."""
        kept = contexts.store_session(self.name, token)
        self._write(replace(self.entry, gateway_url=self.url, session=kept))
        contexts.forget_session(self.entry)

    def forget(self) -> None:
        """Forget the session."""
        self._write(replace(self.entry, session=""))
        contexts.forget_session(self.entry)

    def _write(self, entry: Context) -> None:
        known = contexts.read_contexts()
        current = self.name if self.is_new or not known.current else known.current
        entries = {**known.entries, self.name: entry}
        contexts.write_contexts(replace(known, current=current, entries=entries))


def door_of(out: Output) -> Door:
    """The gateway that is meant: of an option, the environment, the context, the stack here."""
    where = replace(out.where or Where(), gateway=True)
    entries = contexts.read_contexts().entries
    is_told = bool(where.server_url or where.host or where.port)
    if where.context and where.context not in entries and is_told:
        name = contexts.checked_name(where.context)
        url, _ = place_of(out, where, None)
        return Door(url=url, name=name, entry=Context(), is_new=True)
    url, _ = place_of(out, where, known_to(out, where))
    named = where.context or out.settings.context or contexts.read_contexts().current
    fitting = [name for name, entry in entries.items() if entry.gateway_url == url]
    if named in entries and (where.context or named in fitting):
        fitting = [named]
    if fitting:
        return Door(url=url, name=fitting[0], entry=entries[fitting[0]], is_new=False)
    return Door(url=url, name=_name_of(url), entry=Context(), is_new=True)


def _name_of(url: str) -> str:
    """A name for a gateway that has none."""
    parts = urlsplit(url)
    host = (parts.hostname or "gateway").replace(":", "-").strip("-")
    return f"{host}-{parts.port}" if parts.port else host


@asynccontextmanager
async def at_door(out: Output, url: str, token: str = "") -> AsyncIterator[SignInClient]:
    """A client of the sign-in of a gateway."""
    where = out.where or Where()
    transport = SocketTransport(url, token=token, timeout_s=where.request_timeout)
    try:
        yield SignInClient(Patient(transport, out, {}))
    finally:
        await transport.close()
