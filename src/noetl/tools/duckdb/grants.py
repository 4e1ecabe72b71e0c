"""What a task may reach besides its own file: databases, object stores, and who it is there.

A credential becomes a temporary secret of DuckDB. Objects that are named in `attach` and in
`export` pass through the object store of the tools, so that they need no extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.auth import credential, fields_of
from noetl.tools.base import ToolError
from noetl.tools.objects.store import stores_of

if TYPE_CHECKING:
    from noetl.tools.base import ToolContext

SCHEMES: Final = ("s3", "gs", "gcs")
STORES: Final = {"s3": ("s3", "aws"), "gcs": ("gcs", "gcp")}
"""What `type` says, and the types of credentials that fit."""
OBJECTS: Final = "httpfs"
"""The extension that reads objects."""
EXTENSION: Final = {
    "postgres": "postgres_scanner",
    "mysql": "mysql_scanner",
    "sqlite": "sqlite_scanner",
    "s3": OBJECTS,
    "gcs": OBJECTS,
}
_OF_TYPE: Final = {"aws": "s3", "gcp": "gcs"}
_FORMATS: Final = {
    "parquet": "parquet", "csv": "csv", "tsv": "csv", "json": "json", "ndjson": "json",
    "jsonl": "json",
}  # fmt: skip
_SCHEME: Final = {"s3": "s3://", "gcs": "gs://"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A credential for objects, and the addresses that it is for."""

    auth: Any
    scope: str

    def fits(self, uri: str) -> bool:
        """Whether an object is one of its own."""
        return uri.replace("gcs://", "gs://", 1).startswith(self.scope)


@dataclass(slots=True, kw_only=True)
class Grants:
    """What the child is told to load, to know and to attach."""

    extensions: list[str] = field(default_factory=list)
    secrets: list[dict[str, Any]] = field(default_factory=list)
    attach: list[dict[str, Any]] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    remote: list[str] = field(default_factory=list)
    use: str | None = None
    """The database whose tables need no prefix."""

    def needs(self, extension: str) -> None:
        """Load an extension, once."""
        if extension not in self.extensions:
            self.extensions.append(extension)

    def store_for(self, uri: str) -> Any:  # noqa: ANN401 - the `auth` of an object
        """The credential whose scope is the narrowest around an object."""
        fitting = [store for store in self.stores if store.fits(uri)]
        if not fitting:
            message = f"/auth: name a credential of type s3 or gcs for {uri}"
            raise ToolError("auth", "auth_required", message)
        return max(fitting, key=lambda store: len(store.scope)).auth


def is_object(uri: str) -> bool:
    """Whether an address is that of an object in a store."""
    return uri.partition("://")[0] in SCHEMES and "://" in uri


def format_of(uri: str) -> str | None:
    """What the name of a file says of its content."""
    return _FORMATS.get(Path(uri).suffix.removeprefix(".").lower())


async def granted(auth: Any, ctx: ToolContext, *, in_sql: bool) -> Grants:  # noqa: ANN401 - what the author wrote
    """The grants of `auth`: one alias, or a map of names.

    `in_sql` says that a statement names objects itself, which needs the extension for them.
    """
    made = Grants()
    for name, entry in (await _entries(auth, ctx)).items():
        where = f"/auth/{name}"
        kind = str(entry.get("type") or "")
        if kind not in EXTENSION:
            message = f"{where}/type: one of {', '.join(EXTENSION)}"
            raise ToolError("config", "invalid_config", message)
        given = entry.get("credential") or entry.get("auth")
        if kind in STORES:
            await _store(made, (name, kind, given), entry.get("scope"), (ctx, in_sql))
        else:
            fields = await fields_of(given, ctx, types=(kind,), where=where)
            database(made, name, fields, is_read_only=bool(entry.get("read_only")))
    return made


async def _entries(auth: Any, ctx: ToolContext) -> dict[str, Mapping[str, Any]]:  # noqa: ANN401 - as above
    if auth is None:
        return {}
    if isinstance(auth, str):
        kind = str((await credential(auth, ctx)).get("type"))
        return {auth: {"type": _OF_TYPE.get(kind, kind), "credential": auth}}
    if not isinstance(auth, Mapping) or not all(isinstance(v, Mapping) for v in auth.values()):
        message = "/auth: an alias, or a map of names to {type, credential, scope}"
        raise ToolError("config", "invalid_config", message)
    return dict(auth)


async def _store(
    made: Grants,
    about: tuple[str, str, Any],
    scope: Any,  # noqa: ANN401 - what the author wrote
    asked: tuple[ToolContext, bool],
) -> None:
    name, kind, given = about
    ctx, in_sql = asked
    prefix = str(scope or _SCHEME[kind]).replace("gcs://", "gs://", 1)
    if not prefix.startswith(_SCHEME[kind]):
        message = f"/auth/{name}/scope: starts with {_SCHEME[kind]}"
        raise ToolError("config", "invalid_config", message)
    made.stores.append(Store(auth=given, scope=prefix))
    if not in_sql:
        return
    fields = await fields_of(given, ctx, types=STORES[kind], where=f"/auth/{name}")
    made.needs(EXTENSION[kind])
    made.remote.append(prefix)
    endpoint = str(fields.get("endpoint") or "")
    if endpoint:
        await stores_of(ctx).must_reach(endpoint if "://" in endpoint else f"https://{endpoint}")
    made.secrets.append({"name": name, "type": kind, "fields": object_fields(kind, fields, prefix)})


def object_fields(kind: str, fields: Mapping[str, Any], scope: str) -> dict[str, Any]:
    """The fields of a secret for objects."""
    found = {
        "key_id": fields.get("access_key_id"),
        "secret": fields.get("secret_access_key"),
        "scope": scope,
    }
    if kind == "s3":
        found |= {"session_token": fields.get("session_token"), "region": fields.get("region")}
    if kind == "gcs" and not found["key_id"]:
        message = "DuckDB reads gs:// with HMAC keys: access_key_id and secret_access_key"
        raise ToolError("auth", "credential_type", message)
    endpoint = str(fields.get("endpoint") or "")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        found |= {"endpoint": host.rstrip("/"), "url_style": "path", "use_ssl": scheme != "http"}
    return {name: value for name, value in found.items() if value not in (None, "")}


def database(
    made: Grants, name: str, fields: Mapping[str, Any], *, is_read_only: bool = False
) -> None:
    """Attach a database of another kind under a name."""
    kind = str(fields["type"])
    made.needs(EXTENSION[kind])
    if kind == "sqlite":
        path, options = str(fields.get("path") or fields.get("database") or ""), {"type": "sqlite"}
    else:
        made.secrets.append({"name": name, "type": kind, "fields": connection_fields(fields)})
        path, options = connection_words(fields), {"type": kind, "secret": name}
    made.attach.append(
        {"path": path, "name": name, "read_only": is_read_only, "options": options, "kind": kind}
    )


def connection_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a secret for a server of databases."""
    known = ("host", "port", "database", "user", "password")
    return {name: str(fields[name]) for name in known if fields.get(name) not in (None, "")}


def connection_words(fields: Mapping[str, Any]) -> str:
    """What a secret has no field for."""
    mode = str(fields.get("sslmode") or "")
    return f"sslmode={mode}" if mode.replace("-", "").isalpha() else ""
