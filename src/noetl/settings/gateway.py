"""What the gateway is told: variables, and a file of its own that may name sign-in providers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from noetl.settings.models import LEVELS, no_failpoints
from noetl.settings.sources import BadSetting, Model, as_text, contents, environment, of
from noetl.settings.table import BY_NAME, FILES, SETTINGS, is_kubernetes_service
from noetl.settings.values import (
    HTTP,
    NATS,
    PORTS,
    choice,
    flag,
    is_loopback,
    number,
    path,
    text,
    whole,
    words,
)

PROVIDERS: Final = "providers"
_SECRET: Final = "client_secret"  # noqa: S105 - the name of a key
_SECRET_FILE: Final = "client_secret_file"  # noqa: S105 - as above
_SECRET_ALIAS: Final = "client_secret_alias"  # noqa: S105 - as above
_FILE: Final = "file://"
_HOME: Final = Path(".noetl")
_PREFIXES: Final = ("", "GATEWAY_", "NOETL_")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ALIAS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,127}")
"""How credentials are called."""
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInProvider:
    """Somebody who says who people are: a table of `providers` in the gateway's file."""

    name: str
    issuer: str
    client_id: str
    audience: str
    client_secret: str = field(default="", repr=False)
    client_secret_alias: str = ""
    """The credential of the wallet that holds the secret, in the place of one."""
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    role_claim: str = ""
    role_map: Mapping[str, str] = field(default_factory=dict)
    auto_provision: bool = True
    redirect_uri: str = ""
    tenant: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(Model):
    """What `noetl gateway` is told."""

    host: str = of("GATEWAY_BIND", "0.0.0.0", text)  # noqa: S104 - as documented
    port: int = of("ROUTER_PORT", 8090, whole(*PORTS))
    metrics_bind: str = of("GATEWAY_METRICS_BIND", "", text)
    public_url: str = of("GATEWAY_PUBLIC_URL", "", HTTP)
    gateway_url: str = of("NOETL_GATEWAY_URL", "", HTTP)
    config: str = of("GATEWAY_CONFIG", "", text)
    server_url: str = of("NOETL_SERVER_URL", "http://127.0.0.1:8082", HTTP)
    shard_servers: tuple[str, ...] = of("NOETL_SHARD_SERVERS", (), words)
    timeout_s: float = of("NOETL_TIMEOUT_SECS", 120.0, number(1, 3600))
    nats_url: str = of("NOETL_NATS_URL", "", NATS)
    nats_user: str = of("NATS_USER", "", text)
    nats_password: str = of("NATS_PASSWORD", "", text)
    nats_token: str = of("NATS_TOKEN", "", text)
    nats_creds: str = of("NOETL_NATS_CREDS", "", text)
    internal_token: str = of("NOETL_INTERNAL_API_TOKEN", "", text)
    internal_token_previous: str = of("NOETL_INTERNAL_API_TOKEN_PREVIOUS", "", text)
    internal_token_file: str = of("NOETL_INTERNAL_API_TOKEN_FILE", "", text)
    session_bucket: str = of("NATS_SESSION_BUCKET", "sessions", text)
    session_ttl_s: float = of("NATS_SESSION_TTL_SECS", 300.0, number(1, _DAY))
    request_bucket: str = of("NATS_REQUEST_BUCKET", "requests", text)
    request_ttl_s: float = of("NATS_REQUEST_TTL_SECS", 1800.0, number(1, _DAY))
    request_deadline_s: float = of("GATEWAY_REQUEST_DEADLINE_SECS", 1800.0, number(1, _DAY))
    is_sse_on: bool = of("GATEWAY_TRANSPORT_SSE_ENABLED", True, flag)  # noqa: FBT003 - a default
    has_pages: bool = of("GATEWAY_UI_ENABLED", True, flag)  # noqa: FBT003 - a default
    is_ws_on: bool = of("GATEWAY_TRANSPORT_WS_ENABLED", True, flag)  # noqa: FBT003 - as above
    heartbeat_s: float = of("GATEWAY_HEARTBEAT_INTERVAL_SECS", 30.0, number(0.1, 3600))
    connection_timeout_s: float = of("GATEWAY_CONNECTION_TIMEOUT_SECS", 300.0, number(1, _DAY))
    auth_mode: str = of("GATEWAY_AUTH_MODE", "builtin", choice("builtin", "playbook"))
    hook_timeout_s: float = of("AUTH_PLAYBOOK_TIMEOUT_SECS", 12.0, number(1, 600))
    login_hook: str = of("AUTH_PLAYBOOK_LOGIN", "system/auth", text)
    validate_hook: str = of("AUTH_PLAYBOOK_VALIDATE_SESSION", "system/auth", text)
    access_hook: str = of("AUTH_PLAYBOOK_CHECK_ACCESS", "system/rbac", text)
    is_auth_bypassed: bool = of("GATEWAY_AUTH_BYPASS", False, flag)  # noqa: FBT003 - as above
    allows_insecure: bool = of("GATEWAY_ALLOW_INSECURE", False, flag)  # noqa: FBT003 - as above
    needs_callback_token: bool = of("GATEWAY_CALLBACK_REQUIRE_TOKEN", True, flag)  # noqa: FBT003 - as above
    takes_query_token: bool = of("GATEWAY_QUERY_TOKEN_ENABLED", False, flag)  # noqa: FBT003 - as above
    cors_origins: tuple[str, ...] = of("CORS_ALLOWED_ORIGINS", (), words)
    cors_credentials: bool = of("CORS_ALLOW_CREDENTIALS", True, flag)  # noqa: FBT003 - as above
    trusted_proxies: tuple[str, ...] = of("GATEWAY_TRUSTED_PROXIES", (), words)
    shows_schema: bool = of("GATEWAY_GRAPHQL_INTROSPECTION", False, flag)  # noqa: FBT003 - as above
    ingress_most: int = of("GATEWAY_INGRESS_MAX_IN_FLIGHT", 512, whole(1, 100_000))
    spool_default: str = of("NOETL_SPOOL_DEFAULT", "", text)
    oidc_issuer: str = of("NOETL_OIDC_ISSUER", "", HTTP)
    oidc_client_id: str = of("NOETL_OIDC_CLIENT_ID", "", text)
    oidc_client_secret: str = of("NOETL_OIDC_CLIENT_SECRET", "", text)
    oidc_audience: str = of("NOETL_OIDC_AUDIENCE", "", text)
    auth0_domain: str = of("GATEWAY_AUTH0_DOMAIN", "", text)
    auth0_client_id: str = of("GATEWAY_AUTH0_CLIENT_ID", "", text)
    auth0_redirect_uri: str = of("GATEWAY_AUTH0_REDIRECT_URI", "", HTTP)
    auth0_audience: str = of("GATEWAY_AUTH0_AUDIENCE", "", text)
    verify_signature: str = of("NOETL_AUTH_VERIFY_SIGNATURE", "enforce", choice("enforce"))
    http_allow: tuple[str, ...] = of("NOETL_HTTP_ALLOW", (), words)
    tls_cert: str = of("NOETL_TLS_CERT", "", text)
    tls_key: str = of("NOETL_TLS_KEY", "", text)
    tls_client_ca: str = of("NOETL_TLS_CLIENT_CA", "", text)
    home: Path = of("NOETL_HOME", _HOME, path)  # noqa: RUF009 - a field
    env: str = of("NOETL_ENV", "dev", choice("dev", "production"))
    log_level: str = of("NOETL_LOG_LEVEL", "info", choice(*LEVELS))
    machine_id: int | None = of("NOETL_MACHINE_ID", None, whole(0, 1023))
    otlp_endpoint: str = of("OTEL_EXPORTER_OTLP_ENDPOINT", "", HTTP)
    otlp_headers: str = of("OTEL_EXPORTER_OTLP_HEADERS", "", text)
    service_name: str = of("OTEL_SERVICE_NAME", "", text)
    failpoints: str = of("NOETL_FAILPOINTS", "", text)
    providers: tuple[SignInProvider, ...] = ()
    """Of the file, and those that variables name."""

    @classmethod
    def read(  # type: ignore[override] # it takes one thing more, which is no setting
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        fallback: Mapping[str, str] | None = None,
        file: Mapping[str, Any] | None = None,
        **flags: object,
    ) -> Self:
        """Read as every model; `file` is what GATEWAY_CONFIG holds, and the environment wins."""
        env = environment(environ)
        told = {key: value for key, value in (file or {}).items() if key != PROVIDERS}
        variables = {_variable_of(key): as_text("the file", key, told[key]) for key in told}
        listed = _listed((file or {}).get(PROVIDERS, []))
        unset = {name: value for name, value in variables.items() if not _is_set(env, name)}
        made = super(GatewaySettings, cls).read({**unset, **env}, fallback=fallback, **flags)
        found = replace(made, providers=_unique((*made.named_providers(), *listed)))
        found.check()
        return found

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the gateway."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """Where browsers reach the gateway, from its own address without another."""
        scheme = "https" if self.tls_cert else "http"
        is_anywhere = self.host in {"0.0.0.0", "::", ""}  # noqa: S104 - compared, not bound
        host = "127.0.0.1" if is_anywhere else self.host
        host = f"[{host}]" if ":" in host else host
        return self.public_url.rstrip("/") or f"{scheme}://{host}:{self.port}"

    @property
    def callback_url(self) -> str:
        """Where playbooks and the server reach the gateway; as browsers do without another."""
        return self.gateway_url.rstrip("/") or self.url

    @property
    def is_called_back_here(self) -> bool:
        """Whether others reach the gateway, and their playbooks would call their own machine."""
        host = urlsplit(self.callback_url).hostname or ""
        return not self.is_local and is_loopback(host)

    @property
    def switches(self) -> dict[str, bool]:
        """What makes the gateway less safe, by the names that metrics have for it."""
        return {
            "auth_bypass": self.is_auth_bypassed,
            "callback_without_token": not self.needs_callback_token,
            "query_token": self.takes_query_token,
            "allow_insecure": self.allows_insecure,
        }

    def named_providers(self) -> list[SignInProvider]:
        """The providers that variables name."""
        found = []
        if self.oidc_issuer:
            if not self.oidc_client_id:
                raise BadSetting("NOETL_OIDC_ISSUER needs NOETL_OIDC_CLIENT_ID.")
            found.append(SignInProvider(
                name="oidc", issuer=self.oidc_issuer, client_id=self.oidc_client_id,
                client_secret=self.oidc_client_secret,
                audience=self.oidc_audience or self.oidc_client_id))  # fmt: skip
        if self.auth0_domain:
            if not self.auth0_client_id:
                raise BadSetting("GATEWAY_AUTH0_DOMAIN needs GATEWAY_AUTH0_CLIENT_ID.")
            found.append(SignInProvider(
                name="auth0", issuer=f"https://{self.auth0_domain}/",
                client_id=self.auth0_client_id, redirect_uri=self.auth0_redirect_uri,
                audience=self.auth0_audience or self.auth0_client_id))  # fmt: skip
        return found

    def check(self) -> None:
        """Refuse values that do not go together."""
        if not self.internal_token:
            raise BadSetting(
                "The gateway speaks for people to the server and has no token for that.",
                hint="set NOETL_INTERNAL_API_TOKEN, the same as for the server",
            )
        if not self.nats_url:
            raise BadSetting("The gateway needs the bus and was told none.",
                             hint="set NOETL_NATS_URL")  # fmt: skip
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadSetting("NOETL_TLS_CERT and NOETL_TLS_KEY go together; one of them is unset.")
        if self.tls_client_ca and not self.tls_cert:
            raise BadSetting("NOETL_TLS_CLIENT_CA needs NOETL_TLS_CERT.")
        self._check_forms()
        self._check_safety()
        if self.env == "production":
            no_failpoints(self.failpoints)

    def _check_forms(self) -> None:
        for name, bucket in (
            ("NATS_SESSION_BUCKET", self.session_bucket),
            ("NATS_REQUEST_BUCKET", self.request_bucket),
        ):
            if not _BUCKET.fullmatch(bucket):
                raise BadSetting(f"{name} has to be letters, digits, `_` and `-`, not {bucket!r}.")
        host, _, port = self.metrics_bind.rpartition(":")
        if self.metrics_bind and not (host and re.fullmatch(r"[0-9]{1,5}", port)):
            raise BadSetting(
                f"GATEWAY_METRICS_BIND has to be an address and a port, not {self.metrics_bind!r}.",
                hint="such as `127.0.0.1:9091`",
            )
        for address in self.trusted_proxies:
            try:
                ip_network(address, strict=False)
            except ValueError:
                raise BadSetting(
                    f"GATEWAY_TRUSTED_PROXIES has to be addresses or networks, not {address!r}.",
                    hint="such as `10.0.0.0/8,192.0.2.7`",
                ) from None

    def _check_safety(self) -> None:
        if self.is_auth_bypassed and not self.is_local:
            raise BadSetting(
                f"GATEWAY_AUTH_BYPASS lets everybody in, and {self.host} is more than this "
                "machine.",
                hint="bind to 127.0.0.1 with GATEWAY_BIND, or leave the switch off",
            )
        if "*" in self.cors_origins and self.cors_credentials:
            raise BadSetting(
                "CORS_ALLOWED_ORIGINS is `*`, and any page could use the credentials of whoever "
                "looks at it.",
                hint="name the origins, or set CORS_ALLOW_CREDENTIALS=false",
            )
        if self.is_local or self.allows_insecure:
            return
        for is_on, name in (
            (not self.needs_callback_token, "GATEWAY_CALLBACK_REQUIRE_TOKEN=false"),
            (self.takes_query_token, "GATEWAY_QUERY_TOKEN_ENABLED=true"),
        ):
            if is_on:
                raise BadSetting(
                    f"{name} is not safe, and {self.host} is more than this machine.",
                    hint="leave it out, or say GATEWAY_ALLOW_INSECURE=true as well",
                )


def _is_set(env: Mapping[str, str], name: str) -> bool:
    """Whether the environment tells a setting, by whichever of its names."""
    setting = BY_NAME[FILES.get(name, name)]
    names = [setting.name, *setting.aliases]
    if setting.kind == "secret":
        names += [f"{one}_FILE" for one in names]
    return any(env.get(one) and not is_kubernetes_service(one, env[one]) for one in names)


def _variable_of(key: str) -> str:
    """The variable that a key of the file stands for."""
    known: dict[str, str] = {}
    for setting in SETTINGS:
        if "gateway" in setting.processes:
            known |= dict.fromkeys((setting.name, *setting.aliases), setting.name)
            if setting.kind == "secret":
                known[f"{setting.name}_FILE"] = f"{setting.name}_FILE"
    for prefix in _PREFIXES:
        found = known.get(prefix + key.upper())
        if found is not None:
            return found
    raise BadSetting(f"The file of GATEWAY_CONFIG has a key `{key}` that is no setting; "
                     f"{_nearest(key, [*map(str.lower, known), PROVIDERS])}.")  # fmt: skip


def _nearest(key: str, known: list[str]) -> str:
    short = [name.removeprefix("gateway_").removeprefix("noetl_") for name in known]
    near = get_close_matches(key.lower(), [*known, *short], n=1)
    return f"did you mean `{near[0]}`?" if near else "`noetl explain` lists the known ones"


def _listed(given: object) -> list[SignInProvider]:
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise BadSetting("`providers` in the file of GATEWAY_CONFIG has to be a list of tables.")
    return [_provider(dict(one)) for one in given]


def _provider(given: dict[str, Any]) -> SignInProvider:
    known = {item.name: item for item in fields(SignInProvider)}
    name = str(given.get("name", ""))
    where = f"The provider `{name[:40]}` of GATEWAY_CONFIG"
    if not _NAME.fullmatch(name):
        raise BadSetting(f"{where} needs a `name` of lower case letters, digits, `_` and `-`.")
    for key in given:
        if key not in {*known, _SECRET_FILE}:
            raise BadSetting(f"{where} has an unknown key `{key}`; {_nearest(key, list(known))}.")
    for key in ("issuer", "client_id", "audience"):
        if not given.get(key):
            raise BadSetting(f"{where} needs `{key}`.")
    kinds: dict[str, type] = {"scopes": list, "algorithms": list, "role_map": dict}
    kinds["auto_provision"] = bool
    for key, value in given.items():
        kind = kinds.get(key, str)
        if not isinstance(value, kind):
            raise BadSetting(f"{where} has a `{key}` that is no {_KINDS[kind]}.")
        if isinstance(value, list):
            given[key] = tuple(map(str, value))
    given[_SECRET] = _secret_of(where, given)
    return SignInProvider(**given)


def _secret_of(where: str, given: dict[str, Any]) -> str:
    """The secret of a provider: as it stands there, or of the file that stands there."""
    named = [key for key in (_SECRET, _SECRET_FILE, _SECRET_ALIAS) if given.get(key)]
    if len(named) > 1:
        raise BadSetting(f"{where} has both `{named[0]}` and `{named[1]}`.")
    alias: str = given.get(_SECRET_ALIAS, "")
    if alias and not _ALIAS.fullmatch(alias):
        raise BadSetting(f"{where} has a `{_SECRET_ALIAS}` that is no name of a credential.")
    secret: str = given.get(_SECRET, "")
    file: str = given.pop(_SECRET_FILE, "")
    if secret.startswith(_FILE):
        file = secret.removeprefix(_FILE)
    return contents(f"{where}: `{_SECRET}`", file) if file else secret


_KINDS: Final = {list: "list", dict: "table", bool: "`true` or `false`", str: "text"}


def _unique(found: tuple[SignInProvider, ...]) -> tuple[SignInProvider, ...]:
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise BadSetting(f"Two sign-in providers are called `{name}`.")
    return found
