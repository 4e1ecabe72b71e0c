"""Requests of our own for secrets, by the same door and the same rules as those of steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.secrets.fetch import Answer, Unreached
from noetl.tools.base import ToolError
from noetl.tools.http.egress import Address, Egress, Guard, denied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.secrets.fetch import Ask
    from noetl.tools.http.transport import Door

MOST_BYTES: Final = 1 << 20
METADATA_HOST: Final = "metadata.google.internal"
METADATA_ADDRESS: Final = "169.254.169.254"
_HTTP_PORT: Final = 80


class OwnMachine(Egress):
    """Reaches the metadata service of the machine and nothing else.

    No address that an author wrote comes here: only our own question for our own identity.
    """

    def refuse_name(self, host: str) -> None:
        """Refuse every other name."""
        if host != METADATA_HOST:
            raise denied("host", host)

    def refusal(self, host: str, port: int, address: Address) -> str | None:
        """Refuse every other address, whatever the name resolves to."""
        is_it = (host, port, str(address)) == (METADATA_HOST, _HTTP_PORT, METADATA_ADDRESS)
        return None if is_it else "host"


class Fetcher:
    """A `Fetch` on guarded connections: no redirects, answers up to a mebibyte."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._door: Door | None = None

    @classmethod
    def of_machine(cls) -> Fetcher:
        """The way to the metadata service of the machine that we run on."""
        return cls(Guard(egress=OwnMachine()))

    async def __call__(self, ask: Ask) -> Answer:
        """Send one request; a status of any class is an answer."""
        try:
            async with asyncio.timeout(ask.timeout_s):
                return await self.sent(ask)
        except TimeoutError:
            raise Unreached(f"no answer within {ask.timeout_s:g} seconds") from None
        except ToolError as fault:
            hint = "let the host through with NOETL_HTTP_ALLOW" if fault.kind == "egress" else ""
            raise Unreached(fault.message, hint=hint, is_refused=not fault.is_retryable) from None

    async def sent(self, ask: Ask) -> Answer:
        """Send one request as part of a task: its deadline counts, `ToolError` says what failed."""
        # The client takes as long to import as everything else of a short local run.
        from noetl.tools.http.transport import Door  # noqa: PLC0415 - see above

        if ask.authority:  # a few requests an hour at most: not worth a pool that stays
            own = Door(self._guard, authority=ask.authority)
            try:
                return await _through(own, ask)
            finally:
                await own.close()
        if self._door is None:
            self._door = Door(self._guard)
        return await _through(self._door, ask)

    async def close(self) -> None:
        """Close every connection."""
        door, self._door = self._door, None
        if door is not None:
            await door.close()


async def _through(door: Door, ask: Ask) -> Answer:
    """The answer to one request, read whole."""
    # The client takes as long to import as everything else of a short local run.
    from noetl.tools.http.answer import lower_headers  # noqa: PLC0415 - see above
    from noetl.tools.http.request import Request, parsed  # noqa: PLC0415 - see above

    request = Request(
        method=ask.method,
        url=parsed(ask.url),
        headers={"accept-encoding": "identity", **_plain(ask.headers)},
        content=ask.body,
        timeout=dict.fromkeys(("connect", "read", "write", "pool"), ask.timeout_s),
        verify=True,
        follows=False,
        secret_headers=frozenset(ask.headers),
    )
    async with door.send(request) as response:
        kept = bytearray()
        async for chunk in response.aiter_stream():
            kept += chunk
            if len(kept) > MOST_BYTES:
                raise ToolError(
                    "limit", "output_limit", f"the answer is larger than {MOST_BYTES} bytes"
                )
        headers = lower_headers(response.headers)
        return Answer(status=response.status, headers=headers, body=bytes(kept))


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers without line breaks; the value of a bad one is in no message."""
    for name, value in headers.items():
        if not name.isascii() or not (name + value).isprintable():
            message = f"the header {name[:80]!r} has a line break or another control character"
            raise ToolError("config", "invalid_config", message)
    return dict(headers)
