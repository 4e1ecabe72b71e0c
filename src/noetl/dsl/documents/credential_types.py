"""The types of credentials: the fields of each, and which of them nobody may see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

from noetl.dsl.shape import (
    ByType,
    Data,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Model,
    Shape,
    Text,
    choice,
    key,
    model,
    whole,
)

MAP = Data(only="map")
DOCUMENT = ByType(text=Text(), map=MAP)
_TEXTS = ListOf(Text(), least=1, lone=True)


def _field(doc: str, *aliases: str, shape: Shape | None = None) -> Any:  # noqa: ANN401 - a field, see key()
    return key(shape or Text(), doc, default=None, aliases=aliases)


# ---------------------------------------------------------------------------- data by type


@model
class PostgresData(Model):
    """A PostgreSQL connection."""

    url: str | None = _field("all of it as postgresql://..; the other fields win", "dsn")
    host: str | None = _field("host", "db_host")
    port: Any = _field("port", "db_port", shape=ByType(number=whole(1, 65_535), text=Text()))
    user: str | None = _field("user", "db_user")
    password: str | None = _field("password", "db_password")
    database: str | None = _field("database", "db_name", "db_database")
    sslmode: str | None = _field("TLS mode", "db_sslmode")
    ca: str | None = _field("certificates of authorities, in PEM", "sslrootcert", "db_sslrootcert")


@model
class BearerData(Model):
    """A bearer token."""

    token: str = key(Text(), "the token")


@model
class ApiKeyData(Model):
    """An API key in a header."""

    header: str = key(Text(), "header of the key", default="X-API-Key")
    key_: str = key(Text(), "the key", name="key")


@model
class BasicData(Model):
    """User and password."""

    username: str = key(Text(), "user")
    password: str = key(Text(), "password")


@model
class TlsData(Model):
    """A certificate that a client proves itself with, and who may sign that of the server."""

    cert: str | None = _field("certificate and those between it and its authority, in PEM")
    key_: str | None = key(Text(), "its private key, in PEM", name="key", default=None)
    passphrase: str | None = _field("passphrase of the key")
    ca: str | None = _field("certificates of authorities, in PEM")


@model
class OAuth2Data(Model):
    """A client that fetches tokens."""

    client_id: str | None = _field("client id")
    client_secret: str | None = _field("client secret")
    token_url: str | None = _field("where tokens are fetched", "endpoint", "url")
    scopes: Any = _field("scopes", "scope", shape=_TEXTS)
    audience: str | None = _field("audience")
    grant_type: str | None = _field("grant type (client_credentials)")
    refresh_token: str | None = _field("refresh token")
    resource: str | None = _field("resource")
    auth_style: str | None = _field(
        "how the client proves itself: in the body, or `basic`",
        shape=choice("body", "basic"),
    )
    username: str | None = _field("user of a password grant")
    password: str | None = _field("password of a password grant")


@model
class NatsData(Model):
    """A NATS connection."""

    url: str | None = _field("address", "nats_url")
    user: str | None = _field("user", "nats_user")
    password: str | None = _field("password", "nats_password")
    token: str | None = _field("token", "nats_token")


@model
class KafkaData(Model):
    """A Kafka connection."""

    brokers: Any = _field("brokers", shape=_TEXTS)
    sasl_mechanism: str | None = _field("SASL mechanism")
    sasl_username: str | None = _field("SASL user")
    sasl_password: str | None = _field("SASL password")
    ssl: Any = _field("TLS", shape=ByType(flag=Flag(), map=MAP))


@model
class PubsubData(Model):
    """A Pub/Sub connection."""

    endpoint: str | None = _field("endpoint")
    token: str | None = _field("token", "access_token")
    service_account: Any = _field("service-account JSON", shape=DOCUMENT)


@model
class SnowflakeData(Model):
    """A Snowflake session."""

    account: str | None = _field("account", "sf_account")
    user: str | None = _field("user", "sf_user")
    password: str | None = _field("password", "sf_password")
    private_key: str | None = _field("private key", "sf_private_key")
    private_key_passphrase: str | None = _field("its passphrase", "sf_private_key_passphrase")
    warehouse: str | None = _field("warehouse", "sf_warehouse")
    role: str | None = _field("role", "sf_role")
    database: str | None = _field("database", "sf_database")
    schema: str | None = _field("schema", "sf_schema")
    host: str | None = _field("host, when it is not that of the account", "sf_host")
    port: Any = _field("port", "sf_port", shape=ByType(number=whole(1, 65_535), text=Text()))
    protocol: str | None = _field("`https`, or `http`", "sf_protocol")


@model
class AwsData(Model):
    """An AWS identity."""

    access_key_id: str | None = _field("key id", "aws_access_key_id", "access_key")
    secret_access_key: str | None = _field("secret", "aws_secret_access_key", "secret_key")
    session_token: str | None = _field("session token", "aws_session_token")
    region: str | None = _field("region", "aws_region")
    endpoint: str | None = _field("endpoint of an S3-like store", "endpoint_url")
    role_arn: str | None = _field("role that a session takes")
    role_session_name: str | None = _field("name of the session (noetl)")
    external_id: str | None = _field("external id of the role")
    duration_seconds: Any = _field(
        "how long a session lasts", shape=ByType(number=whole(900, 43_200), text=Text())
    )


@model
class GcpData(Model):
    """A Google identity; without a service account, the ambient one."""

    service_account: Any = _field("service-account JSON", "service_account_json", shape=DOCUMENT)
    project: str | None = _field("project", "project_id")
    impersonate: str | None = _field("account whose tokens are asked for")
    endpoint: str | None = _field("endpoint, when it is not Google's", "endpoint_url")
    access_key_id: str | None = _field("HMAC key id, for objects in SQL of DuckDB", "access_key")
    secret_access_key: str | None = _field("HMAC secret", "secret_key")


@model
class AzureData(Model):
    """An application of Microsoft Entra, and its Key Vault."""

    tenant_id: str | None = _field("tenant", "tenant")
    client_id: str | None = _field("client id")
    client_secret: str | None = _field("client secret")
    vault_url: str | None = _field("address of the Key Vault", "endpoint")
    authority: str | None = _field("where tokens are fetched, when it is not Microsoft's")


@model
class VaultData(Model):
    """A server of HashiCorp Vault."""

    url: str | None = _field("address", "address", "endpoint")
    token: str | None = _field("token")
    namespace: str | None = _field("namespace")
    mount: str | None = _field("mount of the secrets (secret)")


@model
class KubernetesData(Model):
    """An API server of Kubernetes."""

    url: str | None = _field("address", "server", "endpoint")
    token: str | None = _field("token of a service account")
    namespace: str | None = _field("namespace (default)")
    ca: str | None = _field("certificates of authorities, in PEM", "ca_cert")


@model
class MysqlData(Model):
    """A MySQL database that DuckDB attaches."""

    host: str | None = _field("host")
    port: Any = _field("port", shape=ByType(number=whole(1, 65_535), text=Text()))
    user: str | None = _field("user")
    password: str | None = _field("password")
    database: str | None = _field("database")
    sslmode: str | None = _field("TLS mode")


@model
class McpData(Model):
    """An MCP endpoint."""

    url: str | None = _field("address")
    token: str | None = _field("token")
    headers: Any = _field("headers", shape=MapOf(Text()))


@model
class SecretData(Model):
    """A single value."""

    value: str = key(Text(), "the value")


TYPES: Mapping[str, type[Model]] = {
    "postgres": PostgresData,
    "bearer": BearerData,
    "api_key": ApiKeyData,
    "basic": BasicData,
    "tls": TlsData,
    "oauth2": OAuth2Data,
    "nats": NatsData,
    "kafka": KafkaData,
    "pubsub": PubsubData,
    "snowflake": SnowflakeData,
    "aws": AwsData,
    "s3": AwsData,
    "gcp": GcpData,
    "gcs": GcpData,
    "azure": AzureData,
    "vault": VaultData,
    "kubernetes": KubernetesData,
    "mysql": MysqlData,
    "mcp": McpData,
    "secret": SecretData,
}


def first_names(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a type under their first names (`db_host` is `host`), without empty ones."""
    cls = TYPES.get(kind)
    known = {} if cls is None else Fields.of(cls).by_name
    return {
        known[name][1].name if name in known else name: value
        for name, value in fields.items()
        if name != "type" and value not in (None, "")
    }


# ---------------------------------------------------------------------------- what is secret

# What says where and as whom, not how it is proved: hiding it would make every log unreadable.
PLAIN = frozenset({
    "type", "host", "port", "user", "username", "database", "schema", "sslmode", "header",
    "url", "endpoint", "region", "account", "warehouse", "role", "project", "brokers", "ssl",
    "protocol", "sasl_mechanism", "sasl_username", "client_id", "token_url", "scopes", "audience",
    "grant_type", "token_type", "expires_in", "expires_at", "issued_at", "version",
    "client_email", "auth_uri", "token_uri", "auth_provider_x509_cert_url",
    "client_x509_cert_url", "universe_domain", "access_key_id",
    "auth_style", "resource", "impersonate",
    "role_arn", "role_session_name", "duration_seconds", "tenant_id", "vault_url", "authority",
    "namespace", "mount",
})  # fmt: skip
_UNCLEAR = frozenset({"access_key"})
"""Names of a plain field that others give a secret."""
_USERINFO = re.compile(r"[a-zA-Z][\w+.-]*://([^/@\s]*)@")


@cache
def plain_names() -> frozenset[str]:
    """The names of the fields that are no secrets, their other names among them."""
    found = set(PLAIN)
    for cls in TYPES.values():
        for name, (_, field) in Fields.of(cls).by_name.items():
            if field.name in PLAIN and name not in _UNCLEAR:
                found.add(name)
    return frozenset(found)


def secrets_in(value: object, name: str = "") -> Iterator[str]:
    """The texts of a credential that nobody may see; an address shows all but who asks."""
    if isinstance(value, Mapping):
        for key_, item in value.items():
            yield from secrets_in(item, str(key_))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from secrets_in(item, name)
    elif name in plain_names():
        if isinstance(value, str) and (found := _USERINFO.match(value)):
            proof = found[1].partition(":")[2] or found[1]
            yield from (proof, unquote(proof), found[1])
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        yield from _secrets_in_text(value)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def texts_in(value: object) -> Iterator[str]:
    """Every text and number inside a value, whatever its name."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _secrets_in_text(text: str) -> Iterator[str]:
    """The same of a document that is written as text, such as a service account."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        yield from secrets_in(found)
    else:
        yield text
