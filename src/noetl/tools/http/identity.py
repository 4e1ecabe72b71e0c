"""Tokens of Google for requests: of a service account, or of the machine that we run on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.tools.base import ToolError
from noetl.tools.http.fetching import Fetcher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch
    from noetl.secrets.tokens.bearer import Bearer
    from noetl.secrets.tokens.google import ServiceAccount
    from noetl.tools.http.egress import Guard

MOST_KEPT: Final = 64


class Identities:
    """Tokens, each kept until shortly before it ends."""

    def __init__(self, guard: Guard, clock: Clock, machine: Fetch | None = None) -> None:
        self._fetch = Fetcher(guard)
        self._clock = clock
        self._machine = machine
        self._own: Fetcher | None = None
        self._kept: OrderedDict[object, tuple[Bearer, asyncio.Lock]] = OrderedDict()

    async def google(self, fields: Mapping[str, Any], scope: str) -> str:
        """A token for the service account among the fields, else for this machine."""
        from noetl.secrets.source import SourceError  # noqa: PLC0415 - few requests need it
        from noetl.secrets.tokens import google  # noqa: PLC0415 - few requests need it

        try:
            account = google.account_of(fields)
            bearer, lock = self._bearer(account, scope or google.CLOUD)
            async with lock:  # one asks, the others wait for its answer
                return await bearer()
        except SourceError as fault:
            hint = f"; {fault.hint}" if fault.hint else ""
            message = f"/auth: {fault.message}{hint}"
            raise ToolError("auth", fault.code, message, retryable=fault.retryable) from None

    def _bearer(self, account: ServiceAccount | None, scope: str) -> tuple[Bearer, asyncio.Lock]:
        from noetl.secrets.tokens import google  # noqa: PLC0415 - few requests need it
        from noetl.secrets.tokens.bearer import Bearer  # noqa: PLC0415 - few requests need it

        key = (account, scope)
        if key not in self._kept:
            mint = partial(
                google.mint,
                self._fetch,
                self._clock,
                scope=scope,
                account=account,
                metadata=None if account is not None else self._of_machine(),
            )
            self._kept[key] = Bearer(self._clock, mint), asyncio.Lock()
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _of_machine(self) -> Fetch:
        if self._machine is not None:
            return self._machine
        if self._own is None:
            self._own = Fetcher.of_machine()
        return self._own

    async def close(self) -> None:
        """Close every connection."""
        await self._fetch.close()
        if self._own is not None:
            await self._own.close()
