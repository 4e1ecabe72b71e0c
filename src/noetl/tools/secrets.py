"""The kind `secrets`: a secret of a provider gets a name in the keychain of the run.

The task sees no value. The server reads it when a later task names `keychain.<handle>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.handles import ENV, handle_of
from noetl.dsl.tasks import Secrets
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

LATEST: Final = "latest"
_WALLET: Final = "wallet"


class SecretsTool:
    """The kind `secrets`."""

    kind: ClassVar[str] = "secrets"
    Config: ClassVar[type[Task]] = Secrets
    traits: ClassVar[Traits] = Traits(side_effects=False)

    async def run(self, config: Secrets, ctx: ToolContext) -> Outcome:
        """Name the secret; whoever reads it needs the rights of the server."""
        if ctx.name_secret is None:
            raise ToolError("config", "invalid_config", "secrets are named by a worker's server")
        handle = handle_of(config.name, config.provider)
        if config.provider == ENV:
            await _must_be_lifted(config.name, ctx)
        else:
            await ctx.name_secret(handle, _entry(config, handle))
        version = LATEST if config.version is None else str(config.version)
        return Outcome(data={"name": config.name, "version": version, "handle": handle})

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing goes on behind it."""


async def _must_be_lifted(name: str, ctx: ToolContext) -> None:
    """A variable is a secret of its own name already, where it is one at all."""
    try:
        if ctx.secrets is not None:
            await ctx.secrets(name)
            return
    except (LookupError, ToolError):
        pass
    message = f"the variable {name} is no secret of this pool; the system pool has some"
    raise ToolError("not_found", "secret_missing", message)


def _entry(config: Secrets, handle: str) -> dict[str, Any]:
    """The keychain entry that reads the secret."""
    if config.provider == _WALLET:
        return {"name": handle, "kind": "credential", "credential": config.name}
    name: Any = config.name
    if config.version is not None:
        name = {"name": config.name, "version": str(config.version)}
    entry = {"name": handle, "kind": "secret_manager", "provider": config.provider}
    auth = {} if config.auth is None else {"auth": config.auth}
    return {**entry, **auth, "map": {"value": name}}
