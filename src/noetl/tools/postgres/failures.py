"""What an error of PostgreSQL, or of the way there, means as an error of the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg import errors as pg

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from noetl.tools.postgres.params import Bound

_KINDS: Final = {
    "08": "db_connection",
    "23": "db_constraint",
    "28": "auth",
    "40001": "db_deadlock",
    "40P01": "db_deadlock",
    "53300": "db_connection",  # all connections are taken, which passes
    "55P03": "db_timeout",
    "57014": "db_timeout",
    "57P0": "db_connection",
}
_FACTS: Final = {
    "detail": "message_detail",
    "hint": "message_hint",
    "context": "context",
    "constraint": "constraint_name",
    "schema": "schema_name",
    "table": "table_name",
    "column": "column_name",
}
_IN_TRANSACTION: Final = "25001"
# What libpq says when there is no connection, in its own words; those of the server come in
# English unless its operator chose another language.
_SAID: Final = (
    ("failed to resolve host", "connection", "DNS_ERROR", True),
    ("could not translate host name", "connection", "DNS_ERROR", True),
    ("Connection refused", "connection", "CONN_REFUSED", True),
    ("No such file or directory", "connection", "CONN_REFUSED", True),
    ("Connection reset", "connection", "CONN_RESET", True),
    ("closed the connection", "connection", "CONN_RESET", True),
    ("timeout expired", "timeout", "CONN_TIMEOUT", True),
    ("password authentication failed", "auth", "PG_28P01", False),
    ("no password supplied", "auth", "PG_28P01", False),
    ("authentication method requirement", "auth", "password_missing", False),
    ("no pg_hba.conf entry", "auth", "PG_28000", False),
    ("is not permitted to log in", "auth", "PG_28000", False),
    ("permission denied for database", "auth", "PG_42501", False),
    ("too many clients", "db_connection", "PG_53300", True),
    ("remaining connection slots", "db_connection", "PG_53300", True),
    ("starting up", "db_connection", "PG_57P03", True),
    ("shutting down", "db_connection", "PG_57P03", True),
    ("recovery mode", "db_connection", "PG_57P03", True),
    ("not accepting connections", "db_connection", "PG_57P03", True),
    ("SSL", "connection", "TLS_ERROR", False),
    ("certificate", "connection", "TLS_ERROR", False),
)
_REMEDIES: Final = {
    "DNS_ERROR": "check `host`",
    "CONN_REFUSED": "check `host` and `port`",
    "PG_28P01": "check `user` and `password` of the credential",
    "password_missing": "the server wants a password: put one into the credential",
    "TLS_ERROR": "check `sslmode` and the certificates",
    "PG_3D000": "check `database`",
    "PG_22": "mend the values",
    "PG_23": "mend the rows, or pass over those that are there (`on conflict`)",
    "PG_42501": "grant the user of the credential the right",
    "PG_42703": "mend the name of the column",
    "PG_42P01": "make the table, or mend its name or `schema`",
    "PG_42": "mend the statement",
}
"""What to do, by a code or the beginning of one; more special ones stand first."""


def unconnected(fault: pg.Error) -> ToolError:
    """The error of a connection that could not be made."""
    if fault.sqlstate:
        return refused(fault, None, None)
    said = _line(str(fault))
    if "does not exist" in said:
        is_role = said.rpartition("FATAL:")[2].strip().startswith("role")
        kind, code = ("auth", "PG_28000") if is_role else ("db_error", "PG_3D000")
        return _told(kind, code, said, is_retryable=False)
    for text, kind, code, is_retryable in _SAID:
        if text in said:
            return _told(kind, code, said, is_retryable=is_retryable)
    return _told("connection", "CONN_FAILED", said, is_retryable=True)


def _told(kind: str, code: str, said: str, *, is_retryable: bool) -> ToolError:
    message = _remedied(code, said)
    state = code.removeprefix("PG_") if code.startswith("PG_") else None
    details = None if state is None else {"sqlstate": state}
    return ToolError(kind, code, message, retryable=is_retryable, details=details)


def _remedied(code: str, said: str) -> str:
    found = (remedy for begin, remedy in _REMEDIES.items() if code.startswith(begin))
    remedy = next(found, None)
    return f"{said}; {remedy}" if remedy else said


def refused(fault: pg.Error, bound: Bound | None, index: int | None) -> ToolError:
    """The error of a statement."""
    state = fault.sqlstate
    where: dict[str, Any] = {} if index is None else {"index": index}
    if state is None:
        return _lost(fault, where)
    found = fault.diag
    message = found.message_primary or _line(str(fault))
    if state == _IN_TRANSACTION:
        message += "; `transaction: false` runs it outside of one"
    details: dict[str, Any] = {"sqlstate": state}
    for name, attribute in _FACTS.items():
        if (value := getattr(found, attribute)) is not None:
            details[name] = value
    if found.statement_position is not None:
        position = int(found.statement_position)
        details["position"] = position if bound is None else bound.written(position)
    code = f"PG_{state}"
    return ToolError(_kind(state), code, _remedied(code, message), details=details | where)


def _kind(state: str) -> str:
    return next((kind for begin, kind in _KINDS.items() if state.startswith(begin)), "db_error")


def _lost(fault: pg.Error, where: dict[str, Any]) -> ToolError:
    """The error of a driver that did not hear the server's own."""
    said = _line(str(fault))
    if isinstance(fault, (pg.OperationalError, pg.InterfaceError)):
        message = f"the connection was lost: {said}"
        return ToolError("connection", "CONN_RESET", message, details=where or None)
    if isinstance(fault, (pg.DataError, pg.ProgrammingError, pg.NotSupportedError)):
        return ToolError("config", "invalid_config", f"/params: {said}", details=where or None)
    return ToolError("db_error", "PG_ERROR", said, details=where or None)


def _line(text: str) -> str:
    """A message of several lines in one."""
    return "; ".join(part.strip() for part in text.splitlines() if part.strip())
