"""What a stack consists of: its secrets, and the settings that each of its processes is given."""

from __future__ import annotations

import secrets
import socket
import sys
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.local.embedded.children import GATEWAY, LISTENERS, SERVER, WORKERS, Process
from noetl.local.embedded.ports import free_port
from noetl.local.embedded.wish import is_loopback
from noetl.server.access.tokens import new_token
from noetl.settings import lifted_names, process_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from noetl.local.embedded.home import Home
    from noetl.local.embedded.wish import Wish
    from noetl.server.admin import Bearer

SYSTEM: Final = "system"
BUS_USER: Final = "noetl"
ADMIN: Final = "admin"
ADMIN_TOKEN: Final = "admin.token"  # noqa: S105 - the name of a file
INTERNAL_TOKEN: Final = "internal.token"  # noqa: S105 - as above
RUNTIME_TOKEN: Final = "runtime.token"  # noqa: S105 - as above
BUS_PASSWORD: Final = "nats.password"  # noqa: S105 - as above
ENCRYPTION_KEY: Final = "encryption.key"
DATABASE_URL: Final = "database.url"
NATS_URL: Final = "nats.url"
_KEY_BYTES: Final = 32
_OF_GATEWAY: Final = ("NOETL_OIDC_CLIENT_SECRET", "NOETL_OIDC_CLIENT_SECRET_FILE")
"""Secrets that are nobody else's."""
_NOT_OF_GATEWAY: Final = (
    "NOETL_INTERNAL_API_TOKEN", "NOETL_WORKER_TOKEN", "NOETL_WORKER_TOKEN_FILE",
    "NOETL_ENCRYPTION_KEY", "NOETL_ENCRYPTION_KEY_FILE",
)  # fmt: skip
_NOETL: Final = (sys.executable, "-m", "noetl.cli.app")


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of a stack, made once and kept in its folder."""

    home: Home
    pools: tuple[str, ...]

    def make(self) -> None:
        """Make what is missing."""
        for name in (ADMIN_TOKEN, INTERNAL_TOKEN, RUNTIME_TOKEN, *map(token_file, self.pools)):
            self.home.secret(name, new_token)
        self.home.secret(BUS_PASSWORD, lambda: secrets.token_urlsafe(24))
        self.home.secret(
            ENCRYPTION_KEY, lambda: b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        )

    def read(self, name: str) -> str:
        """One of them."""
        return self.home.secret_file(name).read_text(encoding="utf-8").strip()

    def bearers(self) -> list[Bearer]:
        """Who may talk to the server: the person here, listeners, and a worker per pool."""
        from noetl.server.admin import Bearer  # noqa: PLC0415 - read while the database starts

        admin = Bearer(
            token=self.read(ADMIN_TOKEN),
            account=ADMIN,
            roles=("admin",),
            name="noetl up",
            is_person=True,
        )
        listeners = Bearer(
            token=self.read(RUNTIME_TOKEN),
            account="runtime",
            roles=("runtime",),
            name="listeners",
        )
        workers = [
            Bearer(
                token=self.read(token_file(pool)),
                account=f"worker:{pool}",
                roles=("worker",),
                name=f"pool {pool}",
                pool=pool,
            )
            for pool in self.pools
            if pool != SYSTEM  # joined by the internal token alone
        ]
        return [admin, listeners, *workers]


def token_file(pool: str) -> str:
    """Where the token of a pool's workers lies; the system pool has the internal one."""
    return INTERNAL_TOKEN if pool == SYSTEM else f"worker-{pool}.token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the parts of a stack find each other."""

    host: str
    port: int
    scheme: str
    nats: str
    gateway_port: int = 0
    """0: there is no gateway."""

    @property
    def server(self) -> str:
        """Where the parts of this machine reach the server."""
        return self._at(self.port)

    @property
    def gateway(self) -> str:
        """Where the parts of this machine reach the gateway; empty without one."""
        return self._at(self.gateway_port) if self.gateway_port else ""

    def _at(self, port: int) -> str:
        host = self.host if is_loopback(self.host) else "127.0.0.1"
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def environment(home: Home, wish: Wish, at: Addresses) -> dict[str, str]:
    """What every process of the stack is given; secrets are named by their files.

    `config.toml` of the folder holds settings of its stack; without it the caller's file counts.
    """
    made = process_environment()
    configs = (home.path / "config.toml", wish.settings.config.absolute())
    for name in ("NOETL_DATABASE_URL", "NOETL_NATS_URL", "NATS_URL", "NOETL_CONFIG"):
        made.pop(name, None)
    for name in ("NOETL_HOST", "NOETL_PORT", "NOETL_BASE_URL", "NOETL_METRICS_PORT", "PORT"):
        made.pop(name, None)
    for name in ("ROUTER_PORT", "GATEWAY_PORT", "GATEWAY_BIND", "NOETL_ADMIN_PASSWORD"):
        made.pop(name, None)
    config = next((file for file in configs if file.exists()), None)
    if config is not None:
        made["NOETL_CONFIG"] = str(config)
    if at.gateway:
        made["NOETL_GATEWAY_URL"] = at.gateway
    return made | {
        "NOETL_HOME": str(home.path),
        "NOETL_ENV": wish.settings.env,
        "NOETL_LOG_LEVEL": wish.settings.log_level,
        "NOETL_SERVER_URL": at.server,
        "NOETL_NATS_URL_FILE": str(home.secret_file(NATS_URL)),
        "PYTHONUNBUFFERED": "1",
    }


def server(home: Home, wish: Wish, at: Addresses, said: Callable[[str], None]) -> Process:
    """The server process."""
    own = {
        "NOETL_HOST": at.host,
        "NOETL_PORT": str(at.port),
        "NOETL_METRICS_PORT": "off",
        "NOETL_DATABASE_URL_FILE": str(home.secret_file(DATABASE_URL)),
        "NOETL_INTERNAL_API_TOKEN_FILE": str(home.secret_file(INTERNAL_TOKEN)),
    }
    environ = environment(home, wish, at)
    if "NOETL_OBJECT_STORE_URL" not in environ:
        own["NOETL_OBJECT_STORE_URL"] = home.folder("objects").as_uri()
    if "NOETL_ENCRYPTION_KEY" not in environ:
        own["NOETL_ENCRYPTION_KEY_FILE"] = str(home.secret_file(ENCRYPTION_KEY))
    for name in ("NOETL_INTERNAL_API_TOKEN", *_OF_GATEWAY, *lifted_names()):
        environ.pop(name, None)
    return Process(
        name="server",
        stage=SERVER,
        command=[*_NOETL, "server"],
        environ={"NOETL_HTTP_EGRESS": "open"} | _spool(home) | environ | own,
        said=said,
        port=at.port,
        url=at.server,
        health=f"{at.server}/readyz",
    )


def gateway(home: Home, wish: Wish, at: Addresses, said: Callable[[str], None]) -> Process:
    """The gateway process: the door for people, browsers and agents."""
    environ = environment(home, wish, at)
    for name in (*_NOT_OF_GATEWAY, *lifted_names()):
        environ.pop(name, None)
    own = {
        "GATEWAY_BIND": at.host,
        "ROUTER_PORT": str(at.gateway_port),
        "GATEWAY_UI_ENABLED": "true" if wish.has_pages else "false",
        "NOETL_INTERNAL_API_TOKEN_FILE": str(home.secret_file(INTERNAL_TOKEN)),
    }
    # Elsewhere the address at which a browser asks is the public one, unless another is told.
    public = wish.settings.public_url or (at.gateway if is_loopback(at.host) else "")
    if public:
        own["GATEWAY_PUBLIC_URL"] = own["NOETL_GATEWAY_URL"] = public
    return Process(
        name="gateway",
        stage=GATEWAY,
        command=[*_NOETL, "gateway"],
        environ={"GATEWAY_GRAPHQL_INTROSPECTION": "true"} | _spool(home) | environ | own,
        said=said,
        port=at.gateway_port,
        url=at.gateway,
        health=f"{at.gateway}/ready",
    )


def worker(  # noqa: PLR0913, PLR0917 - what a worker is made of
    home: Home,
    wish: Wish,
    at: Addresses,
    pool: str,
    slots: int,
    said: Callable[[str], None],
) -> Process:
    """The process of one pool."""
    port = free_port()
    bearer = "NOETL_INTERNAL_API_TOKEN_FILE" if pool == SYSTEM else "NOETL_WORKER_TOKEN_FILE"
    environ = environment(home, wish, at)
    lifted = () if pool == SYSTEM else lifted_names()
    secret = ("NOETL_WORKER_TOKEN", "NOETL_INTERNAL_API_TOKEN", "NOETL_ENCRYPTION_KEY")
    for name in (*secret, *_OF_GATEWAY, *lifted):
        environ.pop(name, None)
    own = {
        "WORKER_POOL_NAME": pool,
        "WORKER_MAX_CONCURRENT": str(slots),
        "WORKER_ID": f"{_hostname()}-{pool}-{home.digest}",
        "WORKER_METRICS_BIND": f"127.0.0.1:{port}",
        bearer: str(home.secret_file(token_file(pool))),
    }
    return Process(
        name=f"worker-{pool}",
        stage=WORKERS,
        command=[*_NOETL, "worker"],
        environ={"NOETL_HTTP_EGRESS": "open"} | _spool(home) | environ | own,
        said=said,
        port=port,
        health=f"http://127.0.0.1:{port}/readyz",
        data_dir=str(home.folder("worker")),
    )


def listener(  # noqa: PLR0913, PLR0917 - what a listener is made of
    home: Home,
    wish: Wish,
    at: Addresses,
    name: str,
    path: str,
    said: Callable[[str], None],
) -> Process:
    """The process that listens for one subscription."""
    port = free_port()
    environ = environment(home, wish, at)
    secret = ("NOETL_WORKER_TOKEN", "NOETL_INTERNAL_API_TOKEN", "NOETL_ENCRYPTION_KEY")
    for gone in (*secret, *_OF_GATEWAY, *lifted_names()):
        environ.pop(gone, None)
    own = {
        "WORKER_ID": f"{_hostname()}-{name}-{home.digest}",
        "WORKER_METRICS_BIND": f"127.0.0.1:{port}",
        "NOETL_WORKER_TOKEN_FILE": str(home.secret_file(RUNTIME_TOKEN)),
    }
    return Process(
        name=name,
        stage=LISTENERS,
        command=[*_NOETL, "worker", "--mode", "subscription", "--subscription", path],
        environ=_spool(home) | environ | own,
        said=said,
        port=port,
        health=f"http://127.0.0.1:{port}/readyz",
        data_dir=str(home.folder("spool")),
    )


def _spool(home: Home) -> dict[str, str]:
    """Where messages wait of subscriptions that name no place."""
    return {"NOETL_SPOOL_DEFAULT": f"local_disk:{home.folder('spool')}"}


def _hostname() -> str:
    """The name of this machine as part of another name."""
    kept = [sign if sign.isalnum() or sign == "-" else "-" for sign in socket.gethostname().lower()]
    return "".join(kept)[:40].strip("-") or "local"


def places(home: Home) -> list[Path]:
    """Data of a stack that lie outside of its folder: PostgreSQL's, when we are root."""
    from noetl.local.lodging import SHARED  # noqa: PLC0415 - only a wipe asks

    return [SHARED / _name_of(home.folder("pg") / "data")]


def _name_of(data_dir: Path) -> str:
    from hashlib import sha256  # noqa: PLC0415 - as above

    return sha256(str(data_dir).encode()).hexdigest()[:16]
