"""Every setting of every process in one table, as data.

It also lists names that nothing reads yet: whoever sets one is told so.
The module is long because the table is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["text", "integer", "number", "presence", "flag", "secret"]

PREFIX: Final = "NOETL_"
CONFIG: Final = "noetl.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable, and the processes that read it."""

    name: str
    kind: Kind
    default: str
    processes: tuple[str, ...]
    meaning: str
    aliases: tuple[str, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether anything reads it; else it has its place, and does nothing yet."""
        return bool(self.processes)


_PROCESSES: Final = {
    "s": "server",
    "w": "worker",
    "g": "gateway",
    "r": "subscription",
    "c": "cli",
    "t": "tests",
}


def _is(
    name: str,
    default: str,
    readers: str,
    meaning: str,
    *aliases: str,
    kind: Kind = "text",
) -> Setting:
    letters = "swgrc" if readers == "a" else readers
    return Setting(
        name=name,
        kind=kind,
        default=default,
        processes=tuple(_PROCESSES[letter] for letter in letters),
        meaning=meaning,
        aliases=aliases,
    )


SETTINGS: Final = (
    _is("NOETL_OUTPUT", "table", "c", "Form of a command's output when `-o` is not given."),
    _is("NOETL_CONTEXT", "", "c", "Named server and credentials; without it the current context."),
    _is("NOETL_TOKEN", "", "c", "Bearer of the command line.", kind="secret"),
    _is("NOETL_SESSION_TOKEN", "", "c", "Bearer of a session.", kind="secret"),
    _is(
        "NO_COLOR",
        "",
        "c",
        "Set to any value, even an empty one: no colour and no cursor movement.",
        kind="presence",
    ),
    _is("TERM", "", "c", "Name of the terminal; `dumb` means the same as `NO_COLOR`."),
    _is(
        "COLUMNS",
        "",
        "c",
        "Width of the output when it does not go to a terminal; 120 without it.",
        kind="integer",
    ),
    _is(
        "XDG_CONFIG_HOME",
        "",
        "c",
        "Folder of `noetl/config.toml`, the contexts; `~/.config` without it.",
    ),
    _is("PATH", os.defpath, "cw", "Where children of steps look for programs."),
    _is("LANG", "C.UTF-8", "cw", "Language of the children of steps."),
    _is("TZ", "", "cw", "Time zone of the children of steps."),
    _is("NOETL_HOME", ".noetl", "a", "Folder of data, logs and secrets."),
    _is("NOETL_CONFIG", CONFIG, "a", "File of settings; a variable wins over it."),
    _is("NOETL_ENV", "dev", "a", "`dev` or `production`, where doubtful settings are errors."),
    _is(
        "NOETL_LOG_LEVEL",
        "info",
        "a",
        "Least level that is logged: `debug`, `info`, `warning`, `error`.",
    ),
    _is("NOETL_HOST", "127.0.0.1", "sc", "Address that the API is bound to."),
    _is("NOETL_PORT", "8082", "sc", "Port of the API.", kind="integer"),
    _is(
        "NOETL_METRICS_PORT",
        "9090",
        "s",
        "Port of the metrics; `off` leaves them on the API alone.",
    ),
    _is("NOETL_SERVER_URL", "http://127.0.0.1:8082", "a", "Where the API is.", "NOETL_BASE_URL"),
    _is("NOETL_PUBLIC_SERVER_URL", "", "s", "Where the API is, as seen from outside."),
    _is(
        "NOETL_GATEWAY_URL",
        "http://127.0.0.1:8090",
        "wgc",
        "Where the gateway is, for the command line and for steps, whose guard lets it pass; for a "
        "gateway itself, where workers and the server reach it: base of callbacks, "
        "`GATEWAY_PUBLIC_URL` without it.",
    ),
    _is(
        "NOETL_DATABASE_URL",
        "",
        "sc",
        "The PostgreSQL database; the embedded one without it.",
        kind="secret",
    ),
    _is("NOETL_DATABASE_POOL_MAX", "16", "s", "Most connections of the main pool.", kind="integer"),
    _is(
        "NOETL_NATS_URL",
        "",
        "swgrc",
        "The bus; the embedded one without it.",
        "NATS_URL",
        kind="secret",
    ),
    _is("NATS_USER", "", "swgr", "User of the bus."),
    _is("NATS_PASSWORD", "", "swgr", "Password of the bus.", kind="secret"),
    _is("NATS_TOKEN", "", "swgr", "Token of the bus.", kind="secret"),
    _is("NOETL_NATS_CREDS", "", "swgr", "File of credentials of the bus."),
    _is("NOETL_SHARDS", "", "", "Shard databases in the order of their index.", kind="secret"),
    _is("NOETL_CLUSTER_DSN", "", "", "Cluster database; shard 0 without it.", kind="secret"),
    _is(
        "NOETL_SHARD_SERVERS", "", "sg", "Base addresses of the servers in the order of the shards."
    ),
    _is("NOETL_SHARD_INDEX", "", "", "Shard that a replica prefers.", kind="integer"),
    _is("NOETL_SHARD_COUNT", "", "", "Number of shards.", kind="integer"),
    _is(
        "NOETL_SHARD_INDEX_FROM_HOSTNAME",
        "",
        "",
        "Take the preferred shard from the host name.",
        kind="flag",
    ),
    _is(
        "NOETL_MACHINE_ID",
        "",
        "swgr",
        "Machine bits of ids, 0..1023; leased without it.",
        kind="integer",
    ),
    _is("NOETL_TLS_CERT", "", "sgc", "File of the certificate."),
    _is("NOETL_TLS_KEY", "", "sgc", "File of the certificate's key."),
    _is(
        "NOETL_TLS_CLIENT_CA",
        "",
        "sg",
        "File of the authority whose client certificates are mandatory.",
    ),
    _is("NOETL_INTERNAL_API_TOKEN", "", "swgr", "Bearer of our own processes.", kind="secret"),
    _is(
        "NOETL_INTERNAL_API_TOKEN_PREVIOUS",
        "",
        "sg",
        "Bearer that is still accepted during a rotation.",
        kind="secret",
    ),
    _is(
        "NOETL_KEYCHAIN_ENV_VARS",
        "",
        "swc",
        "Variables usable as credentials: by workers of the system pool, and as `from: {env}`.",
    ),
    _is(
        "NOETL_ENCRYPTION_KEY",
        "",
        "s",
        "Key that wraps the keys of secrets; made by `noetl up`.",
        kind="secret",
    ),
    _is("NOETL_KMS_PROVIDER", "local", "s", "Who wraps keys: `local`, `vault`, `gcp-kms`."),
    _is("NOETL_KMS_KEY", "", "s", "Name of the wrapping key."),
    _is(
        "NOETL_KMS_PROVIDER_PREVIOUS",
        "",
        "s",
        "Who wrapped keys before: what it wrapped still opens, until all is wrapped anew.",
    ),
    _is("NOETL_KMS_KEY_PREVIOUS", "", "s", "Name of the wrapping key there."),
    _is("VAULT_ADDR", "", "s", "Where Vault is, when it wraps keys."),
    _is(
        "VAULT_TOKEN",
        "",
        "s",
        "Token of Vault; one in a file may be replaced there.",
        kind="secret",
    ),
    _is("VAULT_NAMESPACE", "", "s", "Namespace of Vault."),
    _is(
        "GOOGLE_APPLICATION_CREDENTIALS",
        "",
        "s",
        "File of a service account of Google; the machine's own identity without it.",
    ),
    _is("NOETL_SERVER_REGION", "", "s", "Region for checks of residency."),
    _is(
        "NOETL_ADMIN_PASSWORD",
        "",
        "c",
        "Password of `admin` in the stack of `noetl up`, 12..256 characters; set at each start.",
        kind="secret",
    ),
    _is("NOETL_OIDC_ISSUER", "", "gc", "Default sign-in provider."),
    _is("NOETL_OIDC_CLIENT_ID", "", "g", "Our name there."),
    _is("NOETL_OIDC_CLIENT_SECRET", "", "g", "Our secret there.", kind="secret"),
    _is("NOETL_OIDC_AUDIENCE", "", "g", "Audience of its tokens; the client id without it."),
    _is("GATEWAY_AUTH0_DOMAIN", "", "g", "Domain of the provider `auth0`."),
    _is("GATEWAY_AUTH0_CLIENT_ID", "", "g", "Our name at `auth0`."),
    _is("GATEWAY_AUTH0_REDIRECT_URI", "", "g", "Where `auth0` sends people back to."),
    _is("GATEWAY_AUTH0_AUDIENCE", "", "g", "Audience of the tokens of `auth0`."),
    _is(
        "NOETL_AUTH_VERIFY_SIGNATURE",
        "enforce",
        "g",
        "Signatures are checked; there is no other value.",
    ),
    _is(
        "NOETL_OBJECT_STORE_URL",
        "",
        "s",
        "Store of results over 1 MiB (`s3://bucket/prefix?endpoint=..&region=..`, `gs://`, "
        "`file:///folder`); PostgreSQL without it. Its identity is that of the environment: "
        "`AWS_*`, `GOOGLE_APPLICATION_CREDENTIALS`.",
    ),
    _is(
        "NOETL_INLINE_MAX_BYTES",
        "65536",
        "sw",
        "Largest result that is kept in its event.",
        kind="integer",
    ),
    _is(
        "NOETL_RETENTION_DAYS",
        "30",
        "s",
        "Days that ended runs are kept; 0 keeps them.",
        kind="integer",
    ),
    _is("NOETL_OUTBOX_PUBLISHER", "server", "s", "Who publishes events: `server` or `playbook`."),
    _is("NOETL_LEASE_SECONDS", "15", "s", "Lease of a claim, 5..3600.", kind="number"),
    _is(
        "NOETL_COMMAND_MAX_ATTEMPTS",
        "3",
        "s",
        "Lost attempts before a command fails.",
        kind="integer",
    ),
    _is(
        "NOETL_BACKLOG_MAX",
        "10000",
        "s",
        "Commands of a pool that may wait for a worker; beyond, new runs are refused with 503.",
        kind="integer",
    ),
    _is("NOETL_ALERT_CHANNELS", "", "", "Credential of the channels of alerts."),
    _is("OTEL_EXPORTER_OTLP_ENDPOINT", "", "a", "Where traces go; off without it."),
    _is(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "",
        "a",
        "Headers of what is sent there: `name=value`, separated by commas.",
        kind="secret",
    ),
    _is("OTEL_SERVICE_NAME", "", "a", "Name in traces; `noetl-server`, `noetl-worker` without it."),
    _is("WORKER_POOL_NAME", "", "w", "Pool that a worker joins; required."),
    _is("WORKER_MODE", "command", "wr", "`command`, `subscription` or `watcher`."),
    _is("WORKER_ID", "", "wr", "Name of a worker; host name and eight digits without it."),
    _is("WORKER_MAX_CONCURRENT", "16", "w", "Slots, 1..256; 4 in the system pool.", kind="integer"),
    _is(
        "WORKER_KIND_LIMITS",
        "",
        "w",
        "Ceilings per kind of tool, such as `snowflake=2,container=8`.",
    ),
    _is("WORKER_HEARTBEAT_INTERVAL", "5", "w", "Seconds between two heartbeats.", kind="number"),
    _is("WORKER_DRAIN_SECONDS", "25", "w", "Grace after SIGTERM.", kind="number"),
    _is(
        "WORKER_METRICS_BIND",
        "0.0.0.0:9090",
        "wr",
        "Address of metrics and health; port `PORT` when that is set.",
    ),
    _is("PORT", "", "wr", "Port that a platform gives.", kind="integer"),
    _is("WORKER_MEMORY_HIGH", "80 %", "w", "Share of memory above which claims pause."),
    _is("NATS_CONSUMER", "", "", "Name of the consumer; derived from the pool without it."),
    _is(
        "NATS_FILTER_SUBJECT", "", "", "Subject of the consumer; derived from the pool without it."
    ),
    _is("NOETL_WORKER_TOKEN", "", "wr", "Bearer that is bound to one pool.", kind="secret"),
    _is(
        "NOETL_WORKER_OUTBOX_MAX_BYTES",
        "1073741824",
        "w",
        "Most bytes of reports kept on disk.",
        kind="integer",
    ),
    _is(
        "NOETL_WORKER_COMMAND_TIMEOUT_SECONDS",
        "300",
        "w",
        "Timeout of a tool that names none.",
        kind="number",
    ),
    _is(
        "NOETL_WORKER_TOOL_TIMEOUT_MAX",
        "3600",
        "w",
        "Longest timeout of a tool, in seconds.",
        kind="number",
    ),
    _is(
        "NOETL_TASK_SEQUENCE_MAX_ITERATIONS",
        "1000000",
        "w",
        "Most task runs of one pipeline.",
        kind="integer",
    ),
    _is("NOETL_PYTHON_SANDBOX", "prefer", "wc", "`prefer`, `require` or `off`."),
    _is(
        "NOETL_PYTHON_NETWORK",
        "on",
        "w",
        "`off` takes the network from every child that runs code, whatever its step asks for.",
    ),
    _is("NOETL_PYTHON_REQUIREMENTS", "deny", "w", "`allow` lets steps install packages."),
    _is(
        "NOETL_HTTP_EGRESS",
        "guarded",
        "sw",
        "`guarded` keeps steps and the keychain from internal addresses; `open` does not.",
    ),
    _is("NOETL_HTTP_ALLOW", "", "swg", "Hosts and networks that the guard lets through."),
    _is("NOETL_DATA_ROOTS", "", "w", "Folders of file databases; `<NOETL_HOME>/data` without it."),
    _is("NOETL_SHELL", "on", "w", "`off` disables shell steps.", kind="flag"),
    _is(
        "NOETL_MCP_URL",
        "",
        "w",
        "Default MCP endpoint; `NOETL_MCP_<SERVER>_ENDPOINT` names one more.",
    ),
    _is("NOETL_MCP_STDIO_ALLOW", "", "w", "Programs that MCP steps may start; `*` is any."),
    _is(
        "NOETL_CONTAINER_NAMESPACE",
        "noetl",
        "w",
        "Namespace of container runs; more, separated by commas, are those that steps may name.",
    ),
    _is(
        "NOETL_CONTAINER_COMPLETION_POLL",
        "off",
        "w",
        "Ask for the end of container runs.",
        kind="flag",
    ),
    _is(
        "NOETL_CONTAINER_ALLOW_PROCESS",
        "false",
        "w",
        "Run containers' commands as processes.",
        kind="flag",
    ),
    _is(
        "NOETL_SUBSCRIPTION_STATE_POLL_MS",
        "5000",
        "r",
        "Milliseconds between two looks at the state.",
        kind="integer",
    ),
    _is("NOETL_SPOOL_DEFAULT", "", "wrg", "Spool of a subscription that names none."),
    _is("PUBSUB_EMULATOR_HOST", "", "wr", "Emulator of Pub/Sub, without sign-in."),
    _is("ROUTER_PORT", "8090", "gc", "Port of the gateway.", "GATEWAY_PORT", kind="integer"),
    _is("GATEWAY_BIND", "0.0.0.0", "g", "Address of the gateway."),  # noqa: S104 - as documented
    _is("GATEWAY_METRICS_BIND", "", "g", "Address and port of metrics for everybody there."),
    _is(
        "GATEWAY_PUBLIC_URL",
        "",
        "gc",
        "Base of redirects and cookies, and of callbacks without `NOETL_GATEWAY_URL`.",
    ),
    _is("GATEWAY_CONFIG", "", "g", "File of the gateway's settings."),
    _is(
        "NOETL_TIMEOUT_SECS",
        "120",
        "g",
        "Seconds until the first byte from the server.",
        kind="number",
    ),
    _is(
        "GATEWAY_REQUEST_DEADLINE_SECS",
        "1800",
        "g",
        "Default deadline of a request.",
        kind="number",
    ),
    _is("NATS_SESSION_BUCKET", "sessions", "g", "Bucket of sessions."),
    _is(
        "NATS_SESSION_TTL_SECS", "300", "g", "Seconds that a session is kept there.", kind="number"
    ),
    _is("NATS_REQUEST_BUCKET", "requests", "g", "Bucket of requests."),
    _is(
        "NATS_REQUEST_TTL_SECS", "1800", "g", "Seconds that a request is kept there.", kind="number"
    ),
    _is("GATEWAY_UI_ENABLED", "true", "g", "Serve the web pages.", kind="flag"),
    _is("GATEWAY_TRANSPORT_SSE_ENABLED", "true", "g", "Offer server-sent events.", kind="flag"),
    _is("GATEWAY_TRANSPORT_WS_ENABLED", "true", "g", "Offer WebSocket.", kind="flag"),
    _is("GATEWAY_HEARTBEAT_INTERVAL_SECS", "30", "g", "Seconds between two pings.", kind="number"),
    _is(
        "GATEWAY_CONNECTION_TIMEOUT_SECS",
        "300",
        "g",
        "Silence that closes a socket.",
        kind="number",
    ),
    _is("GATEWAY_AUTH_MODE", "builtin", "g", "`builtin` or `playbook`."),
    _is("AUTH_PLAYBOOK_TIMEOUT_SECS", "12", "g", "Limit of a sign-in hook.", kind="number"),
    _is("AUTH_PLAYBOOK_LOGIN", "system/auth", "g", "Hook of a sign-in."),
    _is("AUTH_PLAYBOOK_VALIDATE_SESSION", "system/auth", "g", "Hook of a session."),
    _is("AUTH_PLAYBOOK_CHECK_ACCESS", "system/rbac", "g", "Hook of a permission."),
    _is(
        "GATEWAY_AUTH_BYPASS",
        "false",
        "g",
        "On loopback only: everybody is `dev@localhost`.",
        kind="flag",
    ),
    _is(
        "GATEWAY_ALLOW_INSECURE",
        "false",
        "g",
        "Lets insecure switches be used off loopback.",
        kind="flag",
    ),
    _is("GATEWAY_CALLBACK_REQUIRE_TOKEN", "true", "g", "Callbacks carry a token.", kind="flag"),
    _is(
        "GATEWAY_QUERY_TOKEN_ENABLED",
        "false",
        "g",
        "Take `session_token` from the query.",
        kind="flag",
    ),
    _is(
        "CORS_ALLOWED_ORIGINS",
        "",
        "g",
        "Exact origins of other pages; the same origin without it.",
    ),
    _is("CORS_ALLOW_CREDENTIALS", "true", "g", "Let those pages send credentials.", kind="flag"),
    _is("GATEWAY_TRUSTED_PROXIES", "", "g", "Proxies whose forwarded addresses are believed."),
    _is(
        "GATEWAY_GRAPHQL_INTROSPECTION", "", "g", "Answer questions about the schema.", kind="flag"
    ),
    _is("GATEWAY_INGRESS_MAX_IN_FLIGHT", "512", "g", "Most webhooks at once.", kind="integer"),
    _is("NOETL_FAILPOINTS", "", "swgrt", "Faults on purpose, never in production."),
    _is("NOETL_TEST_CHROMIUM", "", "t", "Browser of the tests."),
    _is(
        "NOETL_SKIP_UI_TESTS",
        "",
        "t",
        "A person's choice to skip the tests of the UI.",
        kind="flag",
    ),
)

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
ALIASES: Final = {alias for setting in SETTINGS for alias in setting.aliases}
FILES: Final = {f"{s.name}_FILE": s.name for s in SETTINGS if s.kind == "secret"}
_PATTERN: Final = re.compile(r"NOETL_MCP_\w+_ENDPOINT")
# Kubernetes gives every pod these for every service of its namespace, ours included.
_SERVICE_NAME: Final = re.compile(
    r".*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


def is_kubernetes_service(name: str, value: str) -> bool:
    """Whether a variable tells of a service of the cluster, and is no setting."""
    if name in BY_NAME and not name.endswith("_PORT"):
        return False
    return bool(_SERVICE_NAME.fullmatch(name) or _SERVICE_VALUE.match(value))


def is_known(name: str) -> bool:
    """Whether a name has its place in the table."""
    is_listed = name in BY_NAME or name in ALIASES or name in FILES
    return is_listed or bool(_PATTERN.fullmatch(name))


def unknown_names(env: Mapping[str, str]) -> list[str]:
    """One sentence per name of ours that nothing reads."""
    return [
        _unknown(name)
        for name, value in sorted(env.items())
        if name.startswith(PREFIX) and not is_known(name) and not is_kubernetes_service(name, value)
    ]


def unread_names(env: Mapping[str, str]) -> list[str]:
    """One sentence per name that has its place, and does nothing yet."""
    return [
        f"{spelling} is set, and nothing reads it yet."
        for setting in SETTINGS
        if not setting.is_read
        for spelling in (setting.name, f"{setting.name}_FILE")
        if env.get(spelling) and is_known(spelling)
    ]


def _unknown(name: str) -> str:
    ours = [s.name.removeprefix(PREFIX) for s in SETTINGS if s.name.startswith(PREFIX)]
    near = get_close_matches(name.removeprefix(PREFIX), ours, n=1)
    remedy = f"did you mean {PREFIX}{near[0]}?" if near else "`noetl explain` lists the known ones."
    return f"{name} is not a setting of NoETL; {remedy}"
