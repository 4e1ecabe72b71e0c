"""The REST interface of Snowflake, as its connector speaks it: sessions, queries, their results."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.web import Asked, Web

ACCOUNT = "noetl-fake"
USER = "LOADER"
PASSWORD = "canary-snowflake-7301"  # noqa: S105 - of a stand-in
WAREHOUSE = "WORK"

_ASYNC = "333334"
_NO_SESSION = "390111"
_NO_SUCH = {"no such table": (2003, "42S02"), "no such column": (904, "42000")}
_KINDS = {int: "FIXED", float: "REAL", str: "TEXT", bytes: "BINARY"}


class Failed(Exception):
    """A statement failed."""

    def __init__(self, number: int, state: str, said: str) -> None:
        super().__init__(said)
        self.number = number
        self.state = state


@dataclass
class Query:
    """One statement that was sent."""

    id: str
    text: str
    session: str
    parameters: dict[str, Any]
    columns: list[dict[str, Any]] = field(default_factory=list)
    rows: list[list[str | None]] = field(default_factory=list)
    fault: Failed | None = None
    is_aborted: bool = False
    done: Event = field(default_factory=Event)

    @property
    def status(self) -> str:
        if not self.done.is_set():
            return "RUNNING"
        if self.is_aborted:
            return "FAILED_WITH_ERROR"
        return "SUCCESS" if self.fault is None else "FAILED_WITH_ERROR"


class Snowflake(Web):
    """A server whose tables are in memory; `select wait()` runs until it is released or aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: dict[str, Query] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.logins: list[dict[str, Any]] = []
        self._lock = Lock()
        self._tables = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)

    @property
    def fields(self) -> dict[str, Any]:
        """A credential for it."""
        parts = urlsplit(self.url)
        return {
            "account": ACCOUNT, "user": USER, "password": PASSWORD, "host": parts.hostname,
            "port": parts.port, "protocol": "http",
        }  # fmt: skip

    @property
    def texts(self) -> list[str]:
        """The statements in the order in which they came."""
        return [query.text for query in self.queries.values()]

    def release(self) -> None:
        """Let what waits come to its end."""
        for query in list(self.queries.values()):
            query.done.set()

    def stop(self) -> None:
        self.release()
        super().stop()
        self._tables.close()

    # ------------------------------------------------------------------ the interface

    def answer(self, asked: Asked) -> Any:
        match [part for part in asked.path.split("/") if part]:
            case ["session", "v1", "login-request"]:
                return self._login(asked.json["data"], asked.query)
            case ["session"] | ["telemetry", *_] | ["session", "heartbeat", *_]:
                return _good({})
            case ["queries", "v1", "query-request"]:
                return self._send(asked)
            case ["queries", "v1", "abort-request"]:
                return _good({})
            case ["queries", id_, "abort-request"]:
                return self.abort(id_)
            case ["queries", id_, "result"]:
                return self._result(self.queries[id_])
            case ["monitoring", "queries", id_]:
                return self._told(id_)
        return super().answer(asked)

    def _login(self, given: dict[str, Any], place: dict[str, str]) -> Any:
        given = {**given, **place}
        self.logins.append(given)
        if given.get("PASSWORD") != PASSWORD and given.get("AUTHENTICATOR") != "SNOWFLAKE_JWT":
            return _bad(390100, "08001", "Incorrect username or password was specified.")
        token = _id()
        self.sessions[token] = given
        return _good({
            "token": token, "masterToken": _id(), "sessionId": len(self.sessions),
            "validityInSeconds": 3600, "masterValidityInSeconds": 14_400, "parameters": [],
            "sessionInfo": {"databaseName": None, "schemaName": None, "warehouseName": None,
                            "roleName": "PUBLIC"},
        })  # fmt: skip

    def _send(self, asked: Asked) -> Any:
        token = asked.headers.get("authorization", "").partition('"')[2].rstrip('"')
        if token not in self.sessions:
            return _bad(int(_NO_SESSION), "08001", "Session no longer exists.")
        body = asked.json
        query = Query(_id(), body["sqlText"], token, body.get("parameters") or {})
        self.queries[query.id] = query
        if query.text.strip().lower() != "select wait()":
            self._run(query, body.get("bindings") or {})
            query.done.set()
        is_async = bool(body.get("asyncExec"))
        if is_async or not query.done.wait(30):
            found = {"queryId": query.id, "getResultUrl": f"/queries/{query.id}/result"}
            return {"success": True, "code": _ASYNC, "message": None, "data": found}
        return self._result(query)

    def abort(self, id_: str) -> Any:
        """Stop a query, as its owner or an administrator does."""
        query = self.queries[id_]
        if not query.done.is_set():
            query.is_aborted = True
            query.fault = Failed(604, "57014", "SQL execution canceled")
            query.done.set()
        return _good({})

    def _result(self, query: Query) -> Any:
        query.done.wait(30)
        if query.fault is not None:
            return _bad(query.fault.number, query.fault.state, str(query.fault), query.id)
        return _good({
            "queryId": query.id, "rowtype": query.columns, "rowset": query.rows,
            "total": len(query.rows), "returned": len(query.rows), "parameters": [],
            "queryResultFormat": "json", "finalDatabaseName": None, "finalSchemaName": None,
            "finalWarehouseName": None, "finalRoleName": "PUBLIC", "numberOfBinds": 0,
            "arrayBindSupported": False, "version": 1, "sqlState": "00000",
            "statementTypeId": _statement_type(query.text),
        })  # fmt: skip

    def _told(self, id_: str) -> Any:
        query = self.queries.get(id_)
        if query is None:
            return _good({"queries": []})
        fault = query.fault
        return _good({"queries": [{
            "id": query.id, "status": query.status, "state": query.status,
            "errorCode": None if fault is None else f"{fault.number:06d}",
            "errorMessage": None if fault is None else str(fault),
        }]})  # fmt: skip

    # ------------------------------------------------------------------ the statements

    def _run(self, query: Query, bindings: dict[str, Any]) -> None:
        values = [_bound(bindings[name]) for name in sorted(bindings, key=int)]
        is_change = query.text.lower().startswith(("insert", "update", "delete"))
        if is_change and self.sessions[query.session].get("warehouse") != WAREHOUSE:
            message = "No active warehouse selected in the current session."
            query.fault = Failed(606, "57P03", message)
            return
        try:
            with self._lock:
                cursor = self._tables.execute(query.text, values)
                found = cursor.fetchall()
        except sqlite3.Error as fault:
            known = (pair for text, pair in _NO_SUCH.items() if text in str(fault))
            number, state = next(known, (1003, "42000"))
            query.fault = Failed(number, state, f"SQL compilation error: {fault}")
        else:
            _fill(query, cursor, found)


def _fill(query: Query, cursor: sqlite3.Cursor, found: list[tuple[Any, ...]]) -> None:
    if cursor.description is None:
        verb = query.text.split()[0].lower()
        is_change = verb in {"insert", "update", "delete"}
        name = {"insert": "number of rows inserted", "update": "number of rows updated",
                "delete": "number of rows deleted"}.get(verb, "status")  # fmt: skip
        value: Any = cursor.rowcount if is_change else "Statement executed successfully."
        query.columns, query.rows = [_column(name, type(value))], [[str(value)]]
        return
    for at, column in enumerate(cursor.description):
        values = [row[at] for row in found if row[at] is not None]
        query.columns.append(_column(column[0], type(values[0]) if values else str))
    query.rows = [[None if value is None else _text(value) for value in row] for row in found]


def _bound(given: dict[str, Any]) -> Any:
    value = given["value"]
    if value is None:
        return None
    return {"FIXED": int, "REAL": float}.get(given["type"], str)(value)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _column(name: str, kind: type) -> dict[str, Any]:
    return {
        "name": name.upper() if name.isidentifier() else name, "database": "", "schema": "",
        "table": "", "nullable": True, "type": _KINDS[kind].lower(), "length": None,
        "byteLength": None, "precision": 38 if kind is int else None,
        "scale": 0 if kind is int else None, "collation": None,
    }  # fmt: skip


def _statement_type(text: str) -> int:
    kinds = {"select": 4096, "insert": 12_544, "update": 12_800, "delete": 13_056}
    return kinds.get(text.split(maxsplit=1)[0].lower(), 24_576)


def _id() -> str:
    text = secrets.token_hex(16)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _good(data: Any) -> Any:
    return {"success": True, "code": None, "message": None, "data": data}


def _bad(number: int, state: str, said: str, query_id: str | None = None) -> Any:
    data = {"internalError": False, "errorCode": f"{number:06d}", "sqlState": state,
            "queryId": query_id}  # fmt: skip
    return {"success": False, "code": f"{number:06d}", "message": said, "data": data}
