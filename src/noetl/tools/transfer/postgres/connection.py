"""A connection of one transfer alone, and what its errors mean."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

from noetl.tools.base import ToolError
from noetl.tools.postgres.failures import refused, unconnected
from noetl.tools.transfer.plan import type_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.tools.postgres.address import Address

CONNECT_S: Final = 10
_SESSION: Final = (
    "select set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO', false),"
    " set_config('intervalstyle', 'postgres', false), set_config('extra_float_digits', '1', false),"
    " set_config('client_encoding', 'UTF8', false)"
)
_NO_KEY: Final = "42P10"


def connect(address: Address) -> psycopg.Connection[Any]:
    """A connection; where its certificates lie is known to libpq for as long as it looks."""
    with ExitStack() as held:
        options = dict(address.options)
        if address.ca is not None:
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="noetl-ca-"))
            path = Path(folder) / "ca.pem"
            path.write_text(address.ca, encoding="utf-8")
            options["sslrootcert"] = str(path)
        try:
            made = psycopg.connect(
                **options,
                autocommit=True,
                connect_timeout=CONNECT_S,
                prepare_threshold=None,
                passfile="/dev/null",  # no password of this machine
            )
        except psycopg.Error as fault:
            raise unconnected(fault) from None
    with reading():
        made.execute(_SESSION)
    return made


def cut(connection: psycopg.Connection[Any]) -> None:
    """End a connection that another thread waits on; the server undoes what was open."""
    with suppress(psycopg.Error, OSError, ValueError):
        connection.cancel_safe(timeout=1)
    with (
        suppress(psycopg.Error, OSError, ValueError),
        socket.socket(fileno=os.dup(connection.fileno())) as held,
    ):
        held.shutdown(socket.SHUT_RDWR)


@contextmanager
def reading() -> Iterator[None]:
    """Say what went wrong at the source."""
    try:
        yield
    except psycopg.Error as fault:
        raise refused(fault, None, None) from None


@contextmanager
def writing() -> Iterator[None]:
    """Say what went wrong at the target; a value that does not fit its column has a name."""
    try:
        yield
    except psycopg.Error as fault:
        raise _told(fault) from None


def _told(fault: psycopg.Error) -> ToolError:
    error = refused(fault, None, None)
    state = fault.sqlstate or ""
    if state.startswith("22"):
        return type_error(error.message, **(error.details or {}))
    if state == _NO_KEY:
        message = "/key: the table has no unique index on these columns"
        return ToolError("config", "invalid_config", message, details=error.details)
    return error
