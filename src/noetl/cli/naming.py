"""`noetl __complete KIND PREFIX`: names of a server for a shell, at once or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noetl.api.client import Client
    from noetl.cli.output import Output

NAMES: Final = "__complete"
"""What completion scripts call where a name of a server is expected."""
BUDGET_S: Final = 0.3
MOST: Final = 50
KINDS: Final = ("executions", "playbooks", "pools", "schedules", "subscriptions", "contexts")


def complete(out: Output, words: Sequence[str]) -> int:
    """Write the names that begin so, one per line; whatever goes wrong, nothing is said."""
    import asyncio

    kind = words[0] if words else ""
    prefix = words[1] if len(words) > 1 else ""
    try:
        found = _contexts() if kind == "contexts" else asyncio.run(_asked(out, kind, prefix))
    except Exception:  # noqa: BLE001 - a shell that completes must not be disturbed
        return 0
    out.write("".join(f"{name}\n" for name in found if name.startswith(prefix)))
    return 0


def _contexts() -> list[str]:
    from noetl.cli.contexts import read_contexts

    return list(read_contexts().entries)


async def _asked(out: Output, kind: str, prefix: str) -> list[str]:
    ask = _ASKED.get(kind)
    if ask is None:
        return []
    import asyncio

    from noetl.cli.remote import connected
    from noetl.cli.where import Where

    out.is_quiet = True
    out.where = Where(request_timeout=BUDGET_S)
    async with asyncio.timeout(BUDGET_S), connected(out) as client:
        return await ask(client, prefix)


async def _executions(client: Client, prefix: str) -> list[str]:
    page = await client.executions(limit=MOST)
    names = ["@latest", *(f"@latest:{path}" for path in dict.fromkeys(i.path for i in page.items))]
    return (names if prefix.startswith("@") else []) + [item.execution_id for item in page.items]


async def _playbooks(client: Client, prefix: str) -> list[str]:
    from noetl.api.catalog import CatalogQuery

    filters: dict[str, Any] = {"path_prefix": prefix} if prefix else {}
    page = await client.catalog(CatalogQuery(limit=MOST, **filters))
    return list(dict.fromkeys(entry.path for entry in page.entries))


async def _pools(client: Client, _prefix: str) -> list[str]:
    return [pool.pool for pool in (await client.pools()).pools]


async def _schedules(client: Client, _prefix: str) -> list[str]:
    return [item.name for item in (await client.schedules(limit=MOST)).items]


async def _subscriptions(client: Client, _prefix: str) -> list[str]:
    return [item.path for item in (await client.subscriptions()).subscriptions]


_ASKED: Final[dict[str, Callable[[Client, str], Awaitable[list[str]]]]] = {
    "executions": _executions,
    "playbooks": _playbooks,
    "pools": _pools,
    "schedules": _schedules,
    "subscriptions": _subscriptions,
}
