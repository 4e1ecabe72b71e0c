"""One frozen model per process: what it is told, with its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from noetl.settings.sources import BadSetting, Model, Sources, of
from noetl.settings.table import CONFIG
from noetl.settings.values import (
    HTTP,
    NAMESPACE,
    NATS,
    POOL,
    PORTS,
    POSTGRES,
    choice,
    counts,
    flag,
    number,
    or_none,
    password,
    path,
    port_or_auto,
    share,
    text,
    whole,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

LEVELS: Final = ("debug", "info", "warning", "error")
KMS: Final = ("local", "vault", "gcp-kms")
_HOME: Final = Path(".noetl")
_CONFIG: Final = Path(CONFIG)
_NO_LIMITS: Final[dict[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Model):
    """What `noetl server` is told."""

    host: str = of("NOETL_HOST", "127.0.0.1", text)
    port: int = of("NOETL_PORT", 8082, whole(*PORTS))
    metrics_port: int | None = of("NOETL_METRICS_PORT", None, or_none(whole(*PORTS)), unset="9090")
    server_url: str = of("NOETL_SERVER_URL", "", HTTP)
    public_url: str = of("NOETL_PUBLIC_SERVER_URL", "", HTTP)
    servers: tuple[str, ...] = of("NOETL_SHARD_SERVERS", (), words)
    database_url: str = of("NOETL_DATABASE_URL", "", POSTGRES)
    database_pool_max: int = of("NOETL_DATABASE_POOL_MAX", 16, whole(2, 1000))
    nats_url: str = of("NOETL_NATS_URL", "", NATS)
    nats_user: str = of("NATS_USER", "", text)
    nats_password: str = of("NATS_PASSWORD", "", text)
    nats_token: str = of("NATS_TOKEN", "", text)
    nats_creds: str = of("NOETL_NATS_CREDS", "", text)
    internal_token: str = of("NOETL_INTERNAL_API_TOKEN", "", text)
    internal_token_previous: str = of("NOETL_INTERNAL_API_TOKEN_PREVIOUS", "", text)
    internal_token_file: str = of("NOETL_INTERNAL_API_TOKEN_FILE", "", text)
    encryption_key: str = of("NOETL_ENCRYPTION_KEY", "", text)
    kms_provider: str = of("NOETL_KMS_PROVIDER", "local", choice(*KMS))
    kms_key: str = of("NOETL_KMS_KEY", "", text)
    kms_provider_previous: str = of("NOETL_KMS_PROVIDER_PREVIOUS", "", choice(*KMS))
    kms_key_previous: str = of("NOETL_KMS_KEY_PREVIOUS", "", text)
    vault_address: str = of("VAULT_ADDR", "", HTTP)
    vault_token: str = of("VAULT_TOKEN", "", text)
    vault_token_file: str = of("VAULT_TOKEN_FILE", "", text)
    vault_namespace: str = of("VAULT_NAMESPACE", "", text)
    google_credentials: str = of("GOOGLE_APPLICATION_CREDENTIALS", "", text)
    region: str = of("NOETL_SERVER_REGION", "", text)
    http_egress: str = of("NOETL_HTTP_EGRESS", "guarded", choice("guarded", "open"))
    http_allow: tuple[str, ...] = of("NOETL_HTTP_ALLOW", (), words)
    keychain_env_vars: tuple[str, ...] = of("NOETL_KEYCHAIN_ENV_VARS", (), words)
    lease_s: float = of("NOETL_LEASE_SECONDS", 15.0, number(5, 3600))
    max_attempts: int = of("NOETL_COMMAND_MAX_ATTEMPTS", 3, whole(1, 100))
    backlog_max: int = of("NOETL_BACKLOG_MAX", 10_000, whole(1, 1_000_000))
    inline_bytes: int = of("NOETL_INLINE_MAX_BYTES", 65536, whole(1024, 1 << 16))
    object_store_url: str = of("NOETL_OBJECT_STORE_URL", "", text)
    home: Path = of("NOETL_HOME", _HOME, path)  # noqa: RUF009 - a field
    env: str = of("NOETL_ENV", "dev", choice("dev", "production"))
    log_level: str = of("NOETL_LOG_LEVEL", "info", choice(*LEVELS))
    machine_id: int | None = of("NOETL_MACHINE_ID", None, whole(0, 1023))
    retention_days: int = of("NOETL_RETENTION_DAYS", 30, whole(0, 36500))
    outbox_publisher: str = of("NOETL_OUTBOX_PUBLISHER", "server", choice("server", "playbook"))
    tls_cert: str = of("NOETL_TLS_CERT", "", text)
    tls_key: str = of("NOETL_TLS_KEY", "", text)
    tls_client_ca: str = of("NOETL_TLS_CLIENT_CA", "", text)
    otlp_endpoint: str = of("OTEL_EXPORTER_OTLP_ENDPOINT", "", HTTP)
    otlp_headers: str = of("OTEL_EXPORTER_OTLP_HEADERS", "", text)
    service_name: str = of("OTEL_SERVICE_NAME", "", text)
    failpoints: str = of("NOETL_FAILPOINTS", "", text)

    @property
    def url(self) -> str:
        """Where others reach the API, from its own address when no other is told."""
        scheme = "https" if self.tls_cert else "http"
        return self.server_url or f"{scheme}://{self.host}:{self.port}"

    @property
    def internal_tokens(self) -> tuple[str, ...]:
        """Every bearer of our own processes that is accepted."""
        return tuple(filter(None, (self.internal_token, self.internal_token_previous)))

    def check(self) -> None:
        """Refuse values that do not go together."""
        if not self.database_url:
            raise BadSetting(
                "The server needs a database and was told none.",
                hint="set NOETL_DATABASE_URL, or start everything with `noetl up`",
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadSetting("NOETL_TLS_CERT and NOETL_TLS_KEY go together; one of them is unset.")
        if self.tls_client_ca and not self.tls_cert:
            raise BadSetting("NOETL_TLS_CLIENT_CA needs NOETL_TLS_CERT.")
        if self.metrics_port == self.port:
            raise BadSetting("NOETL_METRICS_PORT and NOETL_PORT are the same port.")
        if self.env == "production":
            no_failpoints(self.failpoints)
            if self.kms_provider == "local" and not self.encryption_key:
                raise BadSetting("In production NOETL_ENCRYPTION_KEY is required.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(Model):
    """What `noetl worker` is told."""

    pool: str = of("WORKER_POOL_NAME", "", text)
    mode: str = of("WORKER_MODE", "command", choice("command", "watcher", "subscription"))
    worker_id: str = of("WORKER_ID", "", text)
    slots: int = of("WORKER_MAX_CONCURRENT", 16, whole(1, 256))
    kind_limits: dict[str, int] = of("WORKER_KIND_LIMITS", _NO_LIMITS, counts)  # noqa: RUF009 - a field
    heartbeat_s: float = of("WORKER_HEARTBEAT_INTERVAL", 5.0, number(0.1, 600))
    drain_s: float = of("WORKER_DRAIN_SECONDS", 25.0, number(0, 3600))
    metrics_bind: str = of("WORKER_METRICS_BIND", "", text)
    platform_port: int | None = of("PORT", None, whole(*PORTS))
    server_url: str = of("NOETL_SERVER_URL", "http://127.0.0.1:8082", HTTP)
    gateway_url: str = of("NOETL_GATEWAY_URL", "http://127.0.0.1:8090", HTTP)
    token: str = of("NOETL_WORKER_TOKEN", "", text)
    internal_token: str = of("NOETL_INTERNAL_API_TOKEN", "", text)
    nats_url: str = of("NOETL_NATS_URL", "", NATS)
    nats_user: str = of("NATS_USER", "", text)
    nats_password: str = of("NATS_PASSWORD", "", text)
    nats_token: str = of("NATS_TOKEN", "", text)
    nats_creds: str = of("NOETL_NATS_CREDS", "", text)
    outbox_max_bytes: int = of("NOETL_WORKER_OUTBOX_MAX_BYTES", 1 << 30, whole(1 << 20, 1 << 50))
    tool_timeout_max_s: float = of("NOETL_WORKER_TOOL_TIMEOUT_MAX", 3600.0, number(1, 86400))
    command_timeout_s: float = of("NOETL_WORKER_COMMAND_TIMEOUT_SECONDS", 300.0, number(0.1, 86400))
    most_task_runs: int = of(
        "NOETL_TASK_SEQUENCE_MAX_ITERATIONS", 1_000_000, whole(1, 1_000_000_000)
    )
    inline_bytes: int = of("NOETL_INLINE_MAX_BYTES", 65536, whole(1024, 1 << 16))
    memory_high: float = of("WORKER_MEMORY_HIGH", 0.8, share)
    python_sandbox: str = of("NOETL_PYTHON_SANDBOX", "prefer", choice("prefer", "require", "off"))
    python_network: str = of("NOETL_PYTHON_NETWORK", "on", choice("on", "off"))
    python_requirements: str = of("NOETL_PYTHON_REQUIREMENTS", "deny", choice("deny", "allow"))
    pubsub_emulator: str = of("PUBSUB_EMULATOR_HOST", "", text)
    spool_default: str = of("NOETL_SPOOL_DEFAULT", "", text)
    http_egress: str = of("NOETL_HTTP_EGRESS", "guarded", choice("guarded", "open"))
    http_allow: tuple[str, ...] = of("NOETL_HTTP_ALLOW", (), words)
    data_roots: tuple[str, ...] = of("NOETL_DATA_ROOTS", (), words)
    is_shell_on: bool = of("NOETL_SHELL", True, flag)  # noqa: FBT003 - the default of the field
    mcp_url: str = of("NOETL_MCP_URL", "", HTTP)
    mcp_stdio_allow: tuple[str, ...] = of("NOETL_MCP_STDIO_ALLOW", (), words)
    namespaces: tuple[str, ...] = of("NOETL_CONTAINER_NAMESPACE", ("noetl",), words)
    is_container_polled: bool = of("NOETL_CONTAINER_COMPLETION_POLL", False, flag)  # noqa: FBT003 - as above
    may_run_processes: bool = of("NOETL_CONTAINER_ALLOW_PROCESS", False, flag)  # noqa: FBT003 - as above
    keychain_env_vars: tuple[str, ...] = of("NOETL_KEYCHAIN_ENV_VARS", (), words)
    home: Path = of("NOETL_HOME", _HOME, path)  # noqa: RUF009 - a field
    env: str = of("NOETL_ENV", "dev", choice("dev", "production"))
    log_level: str = of("NOETL_LOG_LEVEL", "info", choice(*LEVELS))
    machine_id: int | None = of("NOETL_MACHINE_ID", None, whole(0, 1023))
    otlp_endpoint: str = of("OTEL_EXPORTER_OTLP_ENDPOINT", "", HTTP)
    otlp_headers: str = of("OTEL_EXPORTER_OTLP_HEADERS", "", text)
    service_name: str = of("OTEL_SERVICE_NAME", "", text)
    failpoints: str = of("NOETL_FAILPOINTS", "", text)

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        fallback: Mapping[str, str] | None = None,
        **flags: object,
    ) -> Self:
        """Read as every model; the pool decides about slots and token that are not given."""
        first = super(WorkerSettings, cls).read(environ, fallback=fallback, **flags)
        more: dict[str, object] = {}
        is_given = Sources(environ, {}).find("WORKER_MAX_CONCURRENT") is not None
        if first.pool == "system":
            more["token"] = first.token or first.internal_token
            more["slots"] = first.slots if is_given or flags.get("slots") else 4
        bind = first.metrics_bind or f"0.0.0.0:{first.platform_port or 9090}"
        values = {item.name: getattr(first, item.name) for item in fields(first)}
        return cls(**(values | more | {"metrics_bind": bind}))

    def check(self) -> None:
        """Refuse values that do not go together."""
        if self.mode == "watcher":
            self._check_watcher()
        elif not POOL.fullmatch(self.pool):
            told = f"`{self.pool}` is not the name of a pool" if self.pool else "no pool was named"
            raise BadSetting(
                f"A worker joins a pool by its name, and {told}.",
                hint="give `--pool shared`; names are lower case letters, digits, `_` and `-`",
                code="worker.bad_pool",
            )
        host, _, port = self.metrics_bind.rpartition(":")
        if self.metrics_bind and not (host and re.fullmatch(r"[0-9]{1,5}", port)):
            raise BadSetting(
                f"WORKER_METRICS_BIND has to be an address and a port, not {self.metrics_bind!r}.",
                hint="such as `127.0.0.1:9090`",
            )
        if not all(map(NAMESPACE.fullmatch, self.namespaces or ("",))):
            raise BadSetting(
                "NOETL_CONTAINER_NAMESPACE has to name namespaces of a cluster.",
                hint="such as `noetl`, or `noetl,research` when jobs may choose",
            )
        if self.env == "production":
            no_failpoints(self.failpoints)

    def _check_watcher(self) -> None:
        if not self.internal_token:
            raise BadSetting(
                "The watcher tells the server of ends of jobs and has no token for that.",
                hint="set NOETL_INTERNAL_API_TOKEN",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings(Model):
    """What `noetl up` is told."""

    home: Path = of("NOETL_HOME", _HOME, path)  # noqa: RUF009 - a field
    host: str = of("NOETL_HOST", "127.0.0.1", text)
    port: int = of("NOETL_PORT", 8082, port_or_auto)
    gateway_port: int = of("ROUTER_PORT", 8090, port_or_auto)
    public_url: str = of("GATEWAY_PUBLIC_URL", "", HTTP)
    database_url: str = of("NOETL_DATABASE_URL", "", POSTGRES)
    nats_url: str = of("NOETL_NATS_URL", "", NATS)
    env: str = of("NOETL_ENV", "dev", choice("dev", "production"))
    log_level: str = of("NOETL_LOG_LEVEL", "info", choice(*LEVELS))
    tls_cert: str = of("NOETL_TLS_CERT", "", text)
    tls_key: str = of("NOETL_TLS_KEY", "", text)
    oidc_issuer: str = of("NOETL_OIDC_ISSUER", "", text)
    admin_password: str = of("NOETL_ADMIN_PASSWORD", "", password)
    config: Path = of("NOETL_CONFIG", _CONFIG, path)  # noqa: RUF009 - a field


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings(Model):
    """What the commands that open a database are told."""

    database_url: str = of("NOETL_DATABASE_URL", "", POSTGRES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings(Model):
    """What a local run is told about traces."""

    otlp_endpoint: str = of("OTEL_EXPORTER_OTLP_ENDPOINT", "", HTTP)
    otlp_headers: str = of("OTEL_EXPORTER_OTLP_HEADERS", "", text)
    service_name: str = of("OTEL_SERVICE_NAME", "", text)


def no_failpoints(failpoints: str) -> None:
    """Refuse faults on purpose."""
    if failpoints:
        raise BadSetting("NOETL_FAILPOINTS makes faults on purpose: never in production.")
