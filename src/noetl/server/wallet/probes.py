"""Trials of credentials: one built-in playbook per kind of system, run by a worker."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialTested
from noetl.api.executions import Execute
from noetl.edge.errors import Unacceptable
from noetl.server.access.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.catalog import Registered
    from noetl.api.executions import Started
    from noetl.server.wallet.credentials import Credentials
    from noetl.store.base import Catalog
    from noetl.store.secrets import CredentialRow

    Registering = Callable[[Register, Caller], Awaitable[Registered]]
    Starting = Callable[[Execute, Caller], Awaitable[Started]]

USE: Final = "credential:use"
_PLAYBOOKS: Final = {
    "postgres": "postgres", "snowflake": "snowflake", "nats": "nats", "aws": "s3", "s3": "s3",
    "gcp": "gcs", "gcs": "gcs", "bearer": "http", "basic": "http", "api_key": "http",
    "oauth2": "http", "tls": "http", "mcp": "mcp",
    "kafka": "kafka", "pubsub": "pubsub",
}  # fmt: skip
_NEEDS: Final = {
    "s3": "bucket", "gcs": "bucket", "http": "url", "kafka": "topic", "pubsub": "subscription",
}  # fmt: skip
"""What `meta.test` must say for a trial to know where to go."""
_TOLD: Final = ("url", "bucket", "topic", "group", "subscription")
"""What `meta.test` may say."""


class Probes:
    """Starts trials."""

    def __init__(
        self,
        credentials: Credentials,
        catalog: Catalog,
        register: Registering,
        execute: Starting,
    ) -> None:
        self._credentials = credentials
        self._catalog = catalog
        self._register = register
        self._execute = execute

    async def start(self, caller: Caller, name: str) -> CredentialTested:
        """Start a run that tries a credential."""
        row = await self._credentials.find(caller, name, USE)
        playbook = _PLAYBOOKS.get(row.type)
        if playbook is None:
            raise _untestable(f"a credential of type {row.type} cannot be tried", row)
        about = row.meta.get("test")
        test: dict[str, Any] = about if isinstance(about, dict) else {}
        needed = _NEEDS.get(playbook)
        if needed is not None and not test.get(needed):
            raise _untestable(f"the trial needs a {needed}: write `meta.test.{needed}`", row)
        platform = Caller(caller.account, ("system",), tenant_id=caller.tenant_id)
        path = await self._known(playbook, platform)
        payload: dict[str, Any] = {name: test[name] for name in _TOLD if name in test}
        payload["credential"] = row.name
        started = await self._execute(
            Execute(path=path, payload=payload, trigger={"kind": "credential_test"}), platform
        )
        return CredentialTested(execution_id=started.execution_id)

    async def _known(self, playbook: str, platform: Caller) -> str:
        """The path of a trial's playbook, which is registered on first use."""
        text = (resources.files("noetl.server.wallet") / "trials" / f"{playbook}.yaml").read_text()
        path = f"system/credential_test/{playbook}"
        known = await self._catalog.resolve(platform.tenant_id, path)
        if known is None or known.content != text:
            await self._register(Register(content=text), platform)
        return path


def _untestable(message: str, row: CredentialRow) -> Unacceptable:
    return Unacceptable(message, code="not_testable", hint=f"the credential is `{row.name}`")
