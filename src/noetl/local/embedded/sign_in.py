"""The address that signs the admin of a stack in, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from noetl.api.sign_in_client import SignInClient
from noetl.api.sockets import SocketTransport
from noetl.errors import NoetlError
from noetl.local.embedded.probe import own_context

if TYPE_CHECKING:
    from noetl.local.embedded.record import Stack

ASK_S: Final = 10.0


async def login_url(stack: Stack) -> str:
    """Where a browser signs in without a password, once, within 15 minutes.

    Empty without a gateway, or with one that serves no pages, or gives no ticket just now.
    """
    if not stack.gateway_url or not stack.has_pages:
        return ""
    tls = own_context() if stack.gateway_url.startswith("https:") else None
    try:
        token = await asyncio.to_thread(Path(stack.token_file).read_text, "utf-8")
        transport = SocketTransport(
            stack.gateway_url, token=token.strip(), timeout_s=ASK_S, tls=tls
        )
        try:
            async with asyncio.timeout(ASK_S):
                made = await SignInClient(transport).ticket("login")
        finally:
            await transport.close()
    except (NoetlError, OSError):  # it runs; `noetl up` gives another one, `noetl login` signs in
        return ""
    query = urlencode({"ticket": made.ticket})
    return f"{stack.public_url.rstrip('/') or stack.gateway_url}/login?{query}"
