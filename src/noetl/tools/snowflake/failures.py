"""What an error of Snowflake, or of the way there, means as an error of the task."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from snowflake.connector import errors as sf

from noetl.tools.base import ToolError, remedied

if TYPE_CHECKING:
    from collections.abc import Iterator

_AUTH: Final = range(390_000, 396_000)
_GONE: Final = frozenset({390_111, 390_112, 390_114})
"""Numbers that say the session is over, which passes with the next one."""
_KINDS: Final = {625: "db_deadlock", 630: "db_timeout", 100_072: "db_constraint"}
_OF_STATE: Final = (("23", "db_constraint"), ("40001", "db_deadlock"), ("57014", "db_timeout"),
                    ("08", "db_connection"), ("28", "auth"))  # fmt: skip
_REMEDIES: Final = {
    14: "check `account` and `host` of the credential, and the way there",
    606: "name a `warehouse` in the task or in the credential",
    608: "let the warehouse resume by itself, or resume it first",
    390_100: "check `user` and `password` of the credential",
    904: "mend the name of the column",
    1003: "mend the statement",
    2003: "make it, mend its name, or grant the role of the credential the right",
    250_001: "check `account` and `host` of the credential, and the way there",
    390_144: "check `user` and `private_key` of the credential",
}


def unconnected(fault: sf.Error) -> ToolError:
    """The error of a session that could not be opened."""
    number = _number(fault)
    if "certificate" in str(fault.raw_msg):
        said = str(fault.raw_msg)
        return remedied(ToolError("connection", "TLS_ERROR", said, retryable=False))
    if number in _AUTH or (fault.sqlstate or "").startswith("28"):
        return _told("auth", fault)
    if isinstance(fault, sf.ProgrammingError):
        return _told("config", fault)
    return _told("db_connection", fault)


def refused(fault: sf.Error) -> ToolError:
    """The error of a statement."""
    number, state = _number(fault), fault.sqlstate or ""
    if number in _GONE:
        return _told("db_connection", fault)
    if number in _KINDS:
        return _told(_KINDS[number], fault)
    if isinstance(fault, sf.IntegrityError):
        return _told("db_constraint", fault)
    of_state = next((kind for begin, kind in _OF_STATE if state.startswith(begin)), None)
    if of_state is not None:
        return _told(of_state, fault)
    if isinstance(fault, (sf.OperationalError, sf.InterfaceError)):
        return _told("db_connection", fault)
    return _told("db_error", fault)


@contextmanager
def translated() -> Iterator[None]:
    """Raise what statements raise in the words of tools, for those who do not know the driver."""
    try:
        yield
    except sf.Error as fault:
        raise refused(fault) from None


def _number(fault: sf.Error) -> int:
    return fault.errno


def _told(kind: str, fault: sf.Error) -> ToolError:
    number = _number(fault)
    said = str(fault.raw_msg or type(fault).__name__)
    remedy = _REMEDIES.get(number)
    details: dict[str, Any] = {"errno": number, "sqlstate": fault.sqlstate}
    if fault.sfqid:
        details["query_id"] = fault.sfqid
    code = f"SF_{number}" if number >= 0 else "SF_ERROR"
    message = said if remedy is None else f"{said}; {remedy}"
    return ToolError(kind, code, message, details=details)
