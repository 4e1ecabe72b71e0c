"""What a process is told that listens for subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from noetl.settings.models import LEVELS, no_failpoints
from noetl.settings.sources import BadSetting, Model, of
from noetl.settings.values import (
    HTTP,
    NATS,
    PORTS,
    choice,
    path,
    text,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MODE: Final = "subscription"
_HOME: Final = Path(".noetl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings(Model):
    """What `noetl worker --mode subscription` is told."""

    mode: str = of("WORKER_MODE", MODE, choice(MODE))
    runtime_id: str = of("WORKER_ID", "", text)
    metrics_bind: str = of("WORKER_METRICS_BIND", "", text)
    platform_port: int | None = of("PORT", None, whole(*PORTS))
    server_url: str = of("NOETL_SERVER_URL", "http://127.0.0.1:8082", HTTP)
    token: str = of("NOETL_WORKER_TOKEN", "", text)
    internal_token: str = of("NOETL_INTERNAL_API_TOKEN", "", text)
    nats_url: str = of("NOETL_NATS_URL", "", NATS)
    nats_user: str = of("NATS_USER", "", text)
    nats_password: str = of("NATS_PASSWORD", "", text)
    nats_token: str = of("NATS_TOKEN", "", text)
    nats_creds: str = of("NOETL_NATS_CREDS", "", text)
    state_poll_ms: int = of("NOETL_SUBSCRIPTION_STATE_POLL_MS", 5000, whole(100, 600_000))
    spool_default: str = of("NOETL_SPOOL_DEFAULT", "", text)
    pubsub_emulator: str = of("PUBSUB_EMULATOR_HOST", "", text)
    home: Path = of("NOETL_HOME", _HOME, path)  # noqa: RUF009 - a field
    env: str = of("NOETL_ENV", "dev", choice("dev", "production"))
    log_level: str = of("NOETL_LOG_LEVEL", "info", choice(*LEVELS))
    machine_id: int | None = of("NOETL_MACHINE_ID", None, whole(0, 1023))
    otlp_endpoint: str = of("OTEL_EXPORTER_OTLP_ENDPOINT", "", HTTP)
    otlp_headers: str = of("OTEL_EXPORTER_OTLP_HEADERS", "", text)
    service_name: str = of("OTEL_SERVICE_NAME", "", text)
    failpoints: str = of("NOETL_FAILPOINTS", "", text)
    paths: tuple[str, ...] = ()
    """The subscriptions it listens for: options of its command line."""

    @classmethod
    def read(  # type: ignore[override] # it takes one thing more, which is no setting
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        fallback: Mapping[str, str] | None = None,
        paths: tuple[str, ...] = (),
        **flags: object,
    ) -> Self:
        """Read as every model; one bearer is enough, whichever is told."""
        first = super(SubscriptionSettings, cls).read(environ, fallback=fallback, **flags)
        values = {item.name: getattr(first, item.name) for item in fields(first)}
        bind = first.metrics_bind or f"0.0.0.0:{first.platform_port or 9090}"
        own = {"metrics_bind": bind, "token": first.bearer, "paths": tuple(dict.fromkeys(paths))}
        made = cls(**(values | own))
        made.check_paths()
        return made

    @property
    def bearer(self) -> str:
        """What it proves itself to the server with."""
        return self.internal_token or self.token

    def check(self) -> None:
        """Refuse values that do not go together."""
        host, _, port = self.metrics_bind.rpartition(":")
        if self.metrics_bind and not (host and port.isdigit() and len(port) < _LONGEST_PORT):
            raise BadSetting(
                f"WORKER_METRICS_BIND has to be an address and a port, not {self.metrics_bind!r}.",
                hint="such as `127.0.0.1:9090`",
            )
        if self.env == "production":
            no_failpoints(self.failpoints)

    def check_paths(self) -> None:
        """Refuse to listen for nothing."""
        if not self.paths:
            raise BadSetting(
                "A listener needs to know its subscriptions, and none was named.",
                hint="give `--subscription PATH`, once for each",
            )


_LONGEST_PORT: Final = 6
