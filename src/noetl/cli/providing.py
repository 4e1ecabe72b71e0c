"""Signing in at a provider: in the browser of this machine, or with a code in another one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from noetl.api.sign_in import CodeExchange, SignIn
from noetl.api.sockets import SocketTransport
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.sign_in import SignInAnswer
    from noetl.api.sign_in_client import SignInClient
    from noetl.cli.output import Output

PATIENCE_S: Final = 300.0
"""How long a person has in the browser."""
BACK: Final = "/callback"
_BYTES: Final = 32
_READ_S: Final = 10.0
_SCOPES: Final = "openid email profile"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_FORM: Final = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_SLOWER_S: Final = 5.0
_OK: Final = 200
_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>NoETL</title>"
    "<p>{said} You can close this page.</p></html>"
)
_HEADERS: Final = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\n"
    "Connection: close\r\n"
)


async def by_browser(
    out: Output, client: SignInClient, provider: dict[str, str], hours: int
) -> SignInAnswer:
    """Send the browser to the provider, and take what it brings back to a port of this machine.

    The gateway says where the provider is and what it asks of it; the challenge is our own, so
    that nobody else can use the code.
    """
    verifier, nonce, state = (secrets.token_urlsafe(_BYTES) for _ in range(3))
    there = urlsplit(await client.departure(provider["name"]))
    async with _Return(state) as back:
        asked = dict(parse_qsl(there.query)) | {
            "redirect_uri": back.url,
            "state": state,
            "nonce": nonce,
            "code_challenge": _challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        url = there._replace(query=urlencode(asked)).geturl()
        if not await asyncio.to_thread(webbrowser.open, url):
            out.note("there is no browser here")
        out.note(f"sign in at {url}")
        try:
            async with asyncio.timeout(PATIENCE_S):
                code = await back.code
        except TimeoutError:
            raise _failed(f"nobody signed in within {PATIENCE_S:g} s") from None
        body = CodeExchange(
            code=code,
            code_verifier=verifier,
            redirect_uri=back.url,
            nonce=nonce,
            session_duration_hours=hours,
        )
        return await client.exchange(provider["name"], body)


class _Return:
    """A port of this machine to which a browser comes back, once."""

    def __init__(self, state: str) -> None:
        self._state = state
        self.code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.code.cancel()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where the provider sends the browser."""
        port = self._server.sockets[0].getsockname()[1] if self._server is not None else 0
        return f"http://127.0.0.1:{port}{BACK}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, said = self._heard(head.split(b" ")[1].decode("ascii", "replace"))
                page = _PAGE.format(said=said).encode()
                start = f"HTTP/1.1 {status}\r\nContent-Length: {len(page)}\r\n{_HEADERS}\r\n"
                writer.write(start.encode() + page)
                await writer.drain()
        except (OSError, EOFError, ValueError, IndexError, TimeoutError):
            pass  # no browser that comes back: it is still waited for
        finally:
            writer.close()

    def _heard(self, target: str) -> tuple[str, str]:
        """What the browser is told; a code that is ours is taken."""
        parts = urlsplit(target)
        told = dict(parse_qsl(parts.query))
        is_ours = hmac.compare_digest(told.get("state", "").encode(), self._state.encode())
        if parts.path != BACK or not is_ours:
            return "404 Not Found", "There is nothing here."
        if self.code.done():
            return "409 Conflict", "This sign-in is over."
        if told.get("code"):
            self.code.set_result(told["code"])
            return "200 OK", "You are signed in."
        self.code.set_exception(_failed(f"the provider refused: {_word(told.get('error'))}"))
        return "200 OK", "You are not signed in."


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a provider offers to machines without a browser."""

    device: str
    token: str


async def by_device(
    out: Output, client: SignInClient, provider: dict[str, str], hours: int
) -> SignInAnswer:
    """Show a code for a browser elsewhere, and wait until somebody has typed it there."""
    offer = await _offered(provider)
    form = {"client_id": provider["client_id"], "scope": _SCOPES}
    status, begun = await _asked("POST", offer.device, form)
    if status != _OK or not isinstance(begun.get("device_code"), str):
        raise _failed(f"the provider gives no code: {_word(begun.get('error'))}")
    where = begun.get("verification_uri_complete") or begun.get("verification_uri")
    out.note(f"open {where} and enter the code {begun.get('user_code')}")
    token = await _granted(offer, provider, begun)
    host = urlsplit(provider["issuer"]).netloc
    body = SignIn(auth0_token=token, auth0_domain=host, session_duration_hours=hours)
    return await client.sign_in(body)


async def _granted(offer: _Offer, provider: dict[str, str], begun: dict[str, Any]) -> str:
    """The token of whoever has typed the code."""
    form = {
        "grant_type": _GRANT,
        "device_code": begun["device_code"],
        "client_id": provider["client_id"],
    }
    pause_s = _number(begun.get("interval"), _SLOWER_S)
    try:
        async with asyncio.timeout(min(_number(begun.get("expires_in"), PATIENCE_S), 1800.0)):
            while True:
                await asyncio.sleep(pause_s)
                status, told = await _asked("POST", offer.token, form)
                if status == _OK and isinstance(told.get("id_token"), str):
                    return str(told["id_token"])
                if told.get("error") == "slow_down":
                    pause_s += _SLOWER_S
                elif told.get("error") != "authorization_pending":
                    raise _failed(f"the provider refused: {_word(told.get('error'))}")
    except TimeoutError:
        raise _failed("nobody entered the code in time") from None


async def _offered(provider: dict[str, str]) -> _Offer:
    """Where a provider takes such sign-ins; not every one does."""
    issuer = provider["issuer"].rstrip("/")
    status, told = await _asked("GET", f"{issuer}/.well-known/openid-configuration")
    found = told.get("device_authorization_endpoint"), told.get("token_endpoint")
    safe = {"https", urlsplit(issuer).scheme}
    for one in found:
        if status != _OK or not isinstance(one, str) or urlsplit(one).scheme not in safe:
            message = f"the provider `{provider['name']}` offers no sign-in with a code"
            raise CommandFailed("usage", message, hint="use `--browser`, or `--password`")
    return _Offer(str(found[0]), str(found[1]))


async def _asked(
    method: str, url: str, form: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """One question to a provider, and what it told."""
    parts = urlsplit(url)
    transport = SocketTransport(f"{parts.scheme}://{parts.netloc}", timeout_s=_READ_S)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        answer = await transport.request(method, path, urlencode(form or {}).encode(), _FORM)
    finally:
        await transport.close()
    try:
        told = json.loads(answer.body)
    except ValueError:
        told = None
    return answer.status, told if isinstance(told, dict) else {}


def _challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _failed(message: str) -> CommandFailed:
    return CommandFailed("sign_in_failed", message, hint="begin again with `noetl login`")


def _word(told: object) -> str:
    """An error of a provider, as far as it can be shown."""
    text = told if isinstance(told, str) else "no reason"
    return "".join(sign for sign in text[:80] if sign.isprintable())


def _number(told: object, usual: float) -> float:
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    return max(0.0, float(told)) if is_number and isinstance(told, int | float) else usual
