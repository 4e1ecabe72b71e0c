"""A session of Snowflake, opened in a thread because its connector waits in place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_S: Final = 30
_FIELDS: Final = (
    "account", "user", "password", "warehouse", "role", "database", "host", "protocol", "schema",
)  # fmt: skip


async def connect(fields: Mapping[str, Any], timeout_s: int = CONNECT_S) -> Any:  # noqa: ANN401 - a connection of the connector
    """Open a session with the fields of a credential; values are bound with question marks."""
    for name in ("account", "user"):
        if not fields.get(name):
            message = f"/auth: the credential has no `{name}`"
            raise ToolError("auth", "auth_required", message)
    if not (fields.get("password") or fields.get("private_key")):
        message = "/auth: the credential has neither `password` nor `private_key`"
        raise ToolError("auth", "auth_required", message)
    options: dict[str, Any] = {name: str(fields[name]) for name in _FIELDS if fields.get(name)}
    if fields.get("port"):
        options["port"] = _port(fields["port"])
    if fields.get("private_key"):
        options.pop("password", None)
        options |= {"authenticator": "SNOWFLAKE_JWT", "private_key": str(fields["private_key"])}
        if fields.get("private_key_passphrase"):
            options["private_key_password"] = str(fields["private_key_passphrase"])
    opening = asyncio.ensure_future(asyncio.to_thread(_connect, options, timeout_s))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_forget)
        raise


def _port(given: object) -> int:
    text = str(given)
    if not (text.isascii() and text.isdigit()):
        raise ToolError("config", "invalid_config", "/auth/port: is no number")
    return int(text)


def _forget(opening: asyncio.Future[Any]) -> None:
    """Close a session that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().close)


def _connect(options: Mapping[str, Any], timeout_s: int) -> Any:  # noqa: ANN401 - see connect
    try:
        import snowflake.connector as driver  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing_extra("snowflake", "snowflake") from None
    from noetl.tools.snowflake.failures import unconnected  # noqa: PLC0415 - brings the driver

    try:
        return driver.connect(
            **options,
            paramstyle="qmark",
            login_timeout=timeout_s,
            application="noetl",
            client_store_temporary_credential=False,
            server_session_keep_alive=False,
            enable_server_session_keep_alive_auto_detection=False,
        )
    except driver.errors.Error as fault:
        raise unconnected(fault) from None
