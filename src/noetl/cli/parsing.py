"""Documents read as this installation knows them: kinds of its plug-ins count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.parse import parse
from noetl.dsl.plugins import STORED

if TYPE_CHECKING:
    from noetl.dsl.parse import Parsed
    from noetl.dsl.plugins import Plugins

_UNKNOWN = "DSL050"


def parsed_here(source: str | bytes) -> Parsed:
    """A document; a kind that is unknown at first is looked for among the plug-ins."""
    found = parse(source)
    if all(item.code != _UNKNOWN for item in found.errors):
        return found
    plugins = _installed()
    return parse(source, plugins=plugins) if plugins else found


def _installed() -> Plugins:
    from noetl.dsl.schema import plugin_schemas
    from noetl.tools.registry import with_plugins

    tools = with_plugins({}).tools
    return plugin_schemas({kind: tool.Config for kind, tool in tools.items()})


def parsed_stored(source: str) -> Parsed:
    """A document of a server, which has judged it."""
    return parse(source, plugins=STORED)
