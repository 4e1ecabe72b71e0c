"""The only reader of the environment: one frozen model per process, every name in one table.

The table is data, so that the models, the warnings about unknown names and the reference page
cannot disagree.
"""

from noetl.settings.command import (
    CliSettings,
    child_environment,
    lifted_names,
    mcp_endpoints,
    podman_environment,
    process_environment,
    sandbox_mode,
    secret_files,
    uv_environment,
    variable,
    warnings,
)
from noetl.settings.gateway import GatewaySettings, SignInProvider
from noetl.settings.models import (
    DatabaseSettings,
    ServerSettings,
    StackSettings,
    TraceSettings,
    WorkerSettings,
)
from noetl.settings.sources import BadSetting
from noetl.settings.subscription import SubscriptionSettings
from noetl.settings.table import SETTINGS, Setting

__all__ = [
    "SETTINGS",
    "BadSetting",
    "CliSettings",
    "DatabaseSettings",
    "GatewaySettings",
    "ServerSettings",
    "Setting",
    "SignInProvider",
    "StackSettings",
    "SubscriptionSettings",
    "TraceSettings",
    "WorkerSettings",
    "child_environment",
    "lifted_names",
    "mcp_endpoints",
    "podman_environment",
    "process_environment",
    "sandbox_mode",
    "secret_files",
    "uv_environment",
    "variable",
    "warnings",
]
