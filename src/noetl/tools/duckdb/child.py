"""Runs in the child: reads jobs from standard input, answers with rows.

A program of its own, started by path and without our packages: each job gets a new database whose
settings are locked before the first statement of the author runs. It is long because a program
without our packages has one file.
"""

import base64
import datetime as dt
import importlib.util
import math
import os
import re
import struct
import threading
import warnings
from decimal import Decimal
from queue import SimpleQueue
from typing import Any

import msgspec

HEAD = struct.Struct(">Q")
BATCH_ROWS = 2048
PREVIEW_ROWS = 3
MOST_WORDS = 6  # of a statement, to know it by
# What the bridge to Python cannot carry as it is.
FORMLESS = ("BIT", "BIGNUM", "VARINT", "TIME WITH TIME ZONE")
# Extensions are granted by the task's keys; a statement would fetch them from anywhere.
REFUSED = ("LOAD", "UPDATE_EXTENSIONS", "UNKNOWN", "???")
# They write files or print, whatever the configuration says.
TELLING = re.compile(r"\benable_(?:logging|profil\w+)", re.IGNORECASE)
# Functions of the scanners that ask nobody, and the one that could spell their names in pieces.
ANYWHERE = re.compile(r"(?:postgres|sqlite|mysql)_(?:scan|attach)|\bquery\W*\(", re.IGNORECASE)
# Whoever makes a secret says where it leads.
SECRET = re.compile(r"create (?:or replace )?(?:temporary |temp |persistent )?secret\b"
                    r"|drop (?:temporary |temp |persistent )?secret\b")  # fmt: skip
WITHOUT_ROWS: tuple[list[str], ...] = (["Count"], ["Success"], [])
_encode = msgspec.json.Encoder(decimal_format="string").encode


class Failure(Exception):
    """Why a job failed: kind, code, message, details."""


# ---------------------------------------------------------------------------- frames


def _listen(jobs: "SimpleQueue[Any]", source: int) -> None:
    """Queue what arrives; when the worker is gone, so are we, even in the middle of a query."""
    buffer = bytearray()
    while chunk := os.read(source, 1 << 16):
        buffer += chunk
        while len(buffer) >= HEAD.size:
            end = HEAD.size + HEAD.unpack_from(buffer)[0]
            if len(buffer) < end:
                break
            jobs.put(msgspec.json.decode(buffer[HEAD.size : end]))
            del buffer[:end]
    os._exit(0)


def _send(sink: int, frame: object) -> None:
    body = _encode(frame)
    view = memoryview(HEAD.pack(len(body)) + body)
    while view:
        view = view[os.write(sink, view) :]


def main() -> None:
    """Answer jobs until the worker closes the channel."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # whatever a library prints cannot damage a frame
    warnings.simplefilter("ignore")
    jobs: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(jobs, source), daemon=True).start()
    try:
        import duckdb  # noqa: PLC0415 - its absence is an answer
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401, PLC0415 - warm; it has no types
    except ImportError as fault:
        _send(sink, {"op": "missing", "message": str(fault)})
        return
    _send(sink, {"op": "hello"})
    while True:
        job = jobs.get()
        try:
            answer = {"op": "done", "data": run_job(duckdb, job)}
        except Failure as fault:
            kind, code, message, details = fault.args
            answer = {
                "op": "failed", "kind": kind, "code": code, "message": message, "details": details,
            }  # fmt: skip
        except Exception as fault:  # noqa: BLE001 - the border: the worker tells what we could not
            message = f"{type(fault).__name__}: {fault}"
            answer = {"op": "failed", "kind": "internal", "code": "internal", "message": message}
        _send(sink, answer)


# ---------------------------------------------------------------------------- one job


def run_job(duckdb: Any, job: "dict[str, Any]") -> "dict[str, Any]":  # noqa: ANN401 - untyped module
    """Run the statements of a job in a database of their own."""
    try:
        connection = duckdb.connect(job["database"], config=_settings(job))
    except duckdb.Error as fault:
        raise _failure(duckdb, fault, None) from None
    try:
        _lock(duckdb, connection, job)
        return _statements(duckdb, connection, job)
    finally:
        connection.close()


def _settings(job: "dict[str, Any]") -> "dict[str, Any]":
    return {
        "threads": job["threads"],
        "memory_limit": job["memory_limit"],
        "temp_directory": job["scratch"],
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",  # a table name must not find a variable of ours
    }


def _lock(duckdb: Any, connection: Any, job: "dict[str, Any]") -> None:  # noqa: ANN401 - untyped module
    """Load and attach what was granted, then close every other way out."""
    for name in job["extensions"]:
        _load(duckdb, connection, name)
    try:
        connection.execute("set timezone = 'UTC'")
        for name, value in _proxied(job.get("proxy")):
            connection.execute(f"set {name} = {_text(value)}")
        for secret in job.get("secrets", ()):
            connection.execute(_secret(secret))
        for item in job["attach"]:
            connection.execute(_attached(item))
        for view in job.get("views", ()):
            connection.execute(_view(view))
        if job.get("use"):
            connection.execute(f"use {_identifier(job['use'])}")
        granted = [*job["roots"], job["scratch"], *job.get("remote", ())]
        folders = ", ".join(_text(path) for path in granted)
        connection.execute(f"set allowed_directories = [{folders}]")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
    except duckdb.Error as fault:
        raise _failure(duckdb, fault, None) from None


def _load(duckdb: Any, connection: Any, name: str) -> None:  # noqa: ANN401 - untyped module
    """Load an extension: one of the library's own, or the file that a wheel brought."""
    try:
        connection.execute(f"load {_identifier(name)}")
    except duckdb.Error:
        path = wheel_of(name, duckdb.__version__)
        if path is None:
            wheel = f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
            message = f'the extension {name} is not installed here: pip install "{wheel}"'
            raise Failure("config", "missing_extension", message, {"extension": name}) from None
    else:
        return
    try:
        connection.execute(f"load {_text(path)}")
    except duckdb.Error as fault:
        message = f"the extension {name} cannot be loaded: {fault}"
        raise Failure("config", "missing_extension", message, {"extension": name}) from None


def wheel_of(name: str, version: str) -> "str | None":
    """The file of an extension that was installed as a package, for this version of the library."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = os.path.join(folder, "extensions", f"v{version}", f"{name}.duckdb_extension")  # noqa: PTH118 - pathlib is not imported for one path
        if os.path.isfile(path):  # noqa: PTH113 - as above
            return path
    return None


def _proxied(proxy: "dict[str, str] | None") -> "list[tuple[str, str]]":
    """Settings that leave one way out."""
    if proxy is None:
        return []
    return [
        ("http_proxy", proxy["address"]),
        ("http_proxy_username", proxy["user"]),
        ("http_proxy_password", proxy["password"]),
    ]


def _secret(secret: "dict[str, Any]") -> str:
    fields = [f"type {_identifier(secret['type'])}"]
    fields += [f"{_identifier(name)} {_option(value)}" for name, value in secret["fields"].items()]
    return f"create temporary secret {_identifier(secret['name'])} ({', '.join(fields)})"


def _attached(item: "dict[str, Any]") -> str:
    options = [f"{name} {_option(value)}" for name, value in item.get("options", {}).items()]
    options += ["read_only"] if item["read_only"] else []
    more = f" ({', '.join(options)})" if options else ""
    return f"attach {_text(item['path'])} as {_identifier(item['name'])}{more}"


def _view(view: "dict[str, Any]") -> str:
    reader = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}[view["format"]]
    name = _identifier(view["name"])
    return f"create temporary view {name} as from {reader}({_text(view['path'])})"


def _option(value: Any) -> str:  # noqa: ANN401 - a text or a number
    return str(value) if isinstance(value, (int, bool)) else _text(str(value))


def _statements(duckdb: Any, connection: Any, job: "dict[str, Any]") -> "dict[str, Any]":  # noqa: ANN401 - untyped module
    statements = _split(duckdb, connection, job["texts"])
    kinds = _checked(statements, job)
    is_one = len(statements) > 1 and "TRANSACTION" not in kinds
    budget = Budget(job)
    parts: list[dict[str, Any]] = []
    if is_one:
        connection.begin()
    for index, statement in enumerate(statements):
        is_last = index == len(statements) - 1
        try:
            if job["export"] and is_last:
                parts.append(_exported(connection, statement, job))
            else:
                parts.append(_one(connection, statement, job["params"], budget))
        except duckdb.Error as fault:
            raise _failure(duckdb, fault, index) from None
        except Failure as fault:
            kind, code, message, details = fault.args
            raise Failure(kind, code, message, {**(details or {}), "index": index}) from None
    if is_one:
        try:
            connection.commit()
        except duckdb.Error as fault:
            raise _failure(duckdb, fault, None) from None
    return _together(parts)


def _split(duckdb: Any, connection: Any, texts: "list[str]") -> "list[Any]":  # noqa: ANN401 - untyped module
    statements: list[Any] = []
    for text in texts:
        try:
            statements += connection.extract_statements(text)
        except duckdb.Error as fault:
            raise _failure(duckdb, fault, len(statements)) from None
    return statements


def _checked(statements: "list[Any]", job: "dict[str, Any]") -> "list[str]":
    """The kinds of the statements, none of which is refused."""
    if job["params"] and len(statements) != 1:
        raise Failure("config", "invalid_config", "/params: they need a single statement", None)
    kinds = [_kind(statement) for statement in statements]
    for index, kind in enumerate(kinds):
        if kind in REFUSED:
            message = "a statement of this kind is not run; extensions go to `extensions`"
            raise Failure("storage_access", "statement_denied", message, {"index": index})
    for index, statement in enumerate(statements):
        if kinds[index] in {"CREATE", "DROP"} and SECRET.match(_words(statement.query)):
            message = "secrets of DuckDB are made from `auth` alone"
            raise Failure("storage_access", "statement_denied", message, {"index": index})
        if TELLING.search(statement.query):
            message = "logs and profiles of DuckDB are not written"
            raise Failure("storage_access", "statement_denied", message, {"index": index})
        if any(name.endswith("_scanner") for name in job["extensions"]) and ANYWHERE.search(
            statement.query
        ):
            message = "this function reaches any database; those in `auth` are read by their names"
            raise Failure("storage_access", "statement_denied", message, {"index": index})
    return kinds


def _words(text: str) -> str:
    """The first words of a statement, without comments."""
    import duckdb  # noqa: PLC0415 - the one place that needs it by name

    ends = [start for start, _ in duckdb.tokenize(text)][:MOST_WORDS]
    found = (re.match(r"\w*", text[start:]) for start in ends)
    return " ".join(word[0].lower() for word in found if word)


def _kind(statement: Any) -> str:  # noqa: ANN401 - untyped module
    try:
        return str(statement.type.name)
    except Exception:  # noqa: BLE001 - the bridge raises anything for a kind that it does not know
        return "UNKNOWN"


def _together(parts: "list[dict[str, Any]]") -> "dict[str, Any]":
    """The last rows on top, every statement by its number."""
    last = next((part for part in reversed(parts) if part["columns"]), parts[-1] if parts else None)
    top = last or {"columns": [], "rows": [], "row_count": 0, "affected_rows": 0}
    return {**top, **{f"command_{index}": part for index, part in enumerate(parts)}}


class Budget:
    """What all statements of a job together may return in place."""

    def __init__(self, job: "dict[str, Any]") -> None:
        self.max_rows = job["max_rows"]
        self.bytes_left = job["max_bytes"]
        self.as_objects = job["as_objects"]
        self.spill = job["spill"]
        self.is_all = bool(job.get("spill_all"))  # even a result that would fit
        self._spilled = 0

    def new_file(self) -> str:
        """Where the next result goes that is too large."""
        self._spilled += 1
        return f"{self.spill}/result_{self._spilled}.parquet"


def _one(connection: Any, statement: Any, params: Any, budget: Budget) -> "dict[str, Any]":  # noqa: ANN401 - untyped module
    if statement.type.name == "SELECT":
        result = connection.sql(statement.query, params=params or None)
        if result is None:
            return {"columns": [], "rows": [], "row_count": 0, "affected_rows": 0}
    else:
        result = connection.execute(statement, params or None)
    described = result.description or []
    columns = _unique([column[0] for column in described])
    if statement.type.name != "SELECT" and columns in WITHOUT_ROWS:
        found = result.fetchall() if columns == ["Count"] else []
        count = int(found[0][0]) if found else 0
        return {"columns": [], "rows": [], "row_count": 0, "affected_rows": count}
    for name, kind, *_ in described:
        if str(kind) in FORMLESS:
            message = f"column {name} is a {kind}, which JSON has no form for: cast it to VARCHAR"
            raise Failure("schema", "not_serialisable", message, None)
    opened = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
    return _rows(opened(BATCH_ROWS), columns, budget)


def _rows(reader: Any, columns: "list[str]", budget: Budget) -> "dict[str, Any]":  # noqa: ANN401 - untyped module
    """Rows in place, or all of them in a file when they are too many or too large."""
    batches, fragments, count, size = [], [], 0, 0
    for batch in reader:
        rows = _plain_rows(batch, columns if budget.as_objects else None)
        fragment = _encode(rows)[1:-1]
        batches.append(batch)
        fragments.append(fragment)
        count += batch.num_rows
        size += len(fragment)
        if count > budget.max_rows or size > budget.bytes_left:
            return _spilled(reader, batches, rows[:PREVIEW_ROWS], (columns, count, budget))
    if budget.is_all:
        return _spilled(reader, batches, [], (columns, count, budget))
    budget.bytes_left -= size
    body = b",".join(fragment for fragment in fragments if fragment)
    rows_json = msgspec.Raw(b"[" + body + b"]")
    return {"columns": columns, "rows": rows_json, "row_count": count, "affected_rows": 0}


def _spilled(
    reader: Any,  # noqa: ANN401 - untyped module
    batches: "list[Any]",
    preview: "list[Any]",
    about: "tuple[list[str], int, Budget]",
) -> "dict[str, Any]":
    columns, count, budget = about
    if not budget.spill:
        if count > budget.max_rows:
            message = f"the statement returned over {budget.max_rows} rows"
            raise Failure("limit", "row_limit", message, None)
        raise Failure("limit", "output_limit", "the rows are larger than `max_bytes`", None)
    import pyarrow as pa  # noqa: PLC0415 - the one place that needs it by name
    import pyarrow.parquet as pq  # noqa: PLC0415 - loaded at the start

    path = budget.new_file()
    try:
        with pq.ParquetWriter(path, reader.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
            for batch in reader:
                count += batch.num_rows
                writer.write_batch(batch)
    except pa.ArrowException as fault:
        message = f"the rows have no form in Parquet: {fault}"
        raise Failure("schema", "not_serialisable", message, None) from None
    return {
        "columns": columns, "rows": [], "row_count": count, "affected_rows": 0,
        "truncated": False, "preview": preview, "file": path,
    }  # fmt: skip


def _exported(connection: Any, statement: Any, job: "dict[str, Any]") -> "dict[str, Any]":  # noqa: ANN401 - untyped module
    if statement.type.name != "SELECT":
        message = "/export: the last statement must be a query"
        raise Failure("config", "invalid_config", message, None)
    export = job["export"]
    query = statement.query.rstrip().rstrip(";")
    more = ", header true" if export["format"] in {"csv", "xlsx"} else ""
    text = f"copy (\n{query}\n) to {_text(export['path'])} (format {export['format']}{more})"
    found = connection.execute(text, job["params"] or None).fetchall()
    count = int(found[0][0]) if found else 0
    return {"columns": [], "rows": [], "row_count": count, "affected_rows": 0}


# ---------------------------------------------------------------------------- values


def _unique(columns: "list[str]") -> "list[str]":
    """Names under which no column of a row hides another."""
    made: list[str] = []
    for name in columns:
        new, number = name, 1
        while new in made:
            new, number = f"{name}_{number}", number + 1
        made.append(new)
    return made


def _plain_rows(batch: Any, names: "list[str] | None") -> "list[Any]":  # noqa: ANN401 - untyped module
    values = [_values(column) for column in batch.columns]
    rows = zip(*values, strict=True)
    if names is None:
        return [list(row) for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _values(column: Any) -> "list[Any]":  # noqa: ANN401 - untyped module
    kind = str(column.type)
    if kind.startswith("timestamp[ns"):  # Python's times end at microseconds
        texts = column.cast("string").to_pylist()
        return [None if text is None else _zulu(text.replace(" ", "T", 1)) for text in texts]
    found = column.to_pylist()
    if kind.startswith(("int", "uint", "string", "bool", "large_string", "null")):
        return found  # type: ignore[no-any-return]  # untyped module
    return [_plain(value) for value in found]


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a database
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return _zulu(value.isoformat())
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if hasattr(value, "nanoseconds"):
        return _duration(value)
    if isinstance(value, list):
        return _list(value)
    return str(value)


def _list(value: "list[Any]") -> Any:  # noqa: ANN401 - a list, or the pairs of a map
    if value and all(isinstance(item, tuple) for item in value):
        return {str(_plain(key)): _plain(item) for key, item in value}
    return [_plain(item) for item in value]


def _zulu(text: str) -> str:
    """A time in RFC 3339; one without a zone is UTC."""
    if text.endswith("+00:00"):
        return text[:-6] + "Z"
    has_zone = text.endswith("Z") or "+" in text[10:] or "-" in text[10:]
    return text if has_zone else f"{text}Z"


def _duration(value: Any) -> str:  # noqa: ANN401 - months, days and nanoseconds
    """An interval in ISO 8601."""
    sign = "-" if value.nanoseconds < 0 else ""
    whole, rest = divmod(abs(value.nanoseconds), 1_000_000_000)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"P{value.months}M{value.days}DT{sign}{whole}{fraction}S"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _identifier(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


# ---------------------------------------------------------------------------- failures

_KINDS = {
    "ConstraintException": "db_constraint",
    "TransactionException": "db_deadlock",
    "PermissionException": "storage_access",
    "OutOfMemoryException": "limit",
    "InterruptException": "cancelled",
    "ConnectionException": "db_connection",
}


def _failure(duckdb: Any, fault: Exception, index: "int | None") -> Failure:  # noqa: ANN401 - untyped module
    name = type(fault).__name__
    kind = _KINDS.get(name, "db_error")
    code = "DUCKDB_" + name.removesuffix("Exception").upper()
    if kind == "limit":
        code = "memory_limit"
    elif kind == "storage_access":
        code = "outside_data_roots"
        if any(f'"{scheme}://' in str(fault) for scheme in ("s3", "gs", "gcs")):
            kind, code = "config", "missing_extension"
            hint = (
                "objects are read in SQL by the extension httpfs and a credential in `auth`;"
                " without it, name them in `attach`: [{uri, as}]"
            )
            return Failure(kind, code, f"{hint}: {fault}", {"extension": "httpfs", "index": index})
    elif isinstance(fault, duckdb.IOException) and "lock" in str(fault).lower():
        kind, code = "db_timeout", "database_locked"
    return Failure(kind, code, str(fault), None if index is None else {"index": index})


if __name__ == "__main__":
    main()
