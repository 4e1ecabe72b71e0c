"""A client of the gateway's sign-in: sessions begin and end, and tickets are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.client.calls import Calls, problem, segment
from noetl.api.gateway import GatewayContract
from noetl.api.problems import Refused
from noetl.api.sign_in import CodeExchange, SignIn, SignInAnswer, TicketAnswer, TicketWanted

if TYPE_CHECKING:
    from noetl.api.sign_in import Purpose

_ELSEWHERE: Final = 302


class SignInClient(Calls):
    """Somebody at the door."""

    async def contract(self) -> GatewayContract:
        """What the gateway offers, sign-in providers among it."""
        return await self._get("/api/runtime/contract", GatewayContract)

    async def sign_in(self, body: SignIn) -> SignInAnswer:
        """Begin a session, by a password or by the token of an issuer."""
        return await self._post("/api/auth/login", body, SignInAnswer)

    async def departure(self, provider: str) -> str:
        """Where the gateway sends a browser to sign in."""
        answer = await self.raw("GET", f"/api/auth/oidc/{segment(provider)}/start")
        if answer.status == _ELSEWHERE:
            return answer.headers.get("location", "")
        raise Refused(problem(answer))

    async def exchange(self, provider: str, body: CodeExchange) -> SignInAnswer:
        """Begin the session of somebody who has signed in at a provider."""
        path = f"/api/auth/oidc/{segment(provider)}/exchange"
        return await self._post(path, body, SignInAnswer)

    async def sign_out(self) -> None:
        """End the caller's session."""
        await self._call("POST", "/api/auth/logout")

    async def ticket(self, purpose: Purpose) -> TicketAnswer:
        """A ticket that opens one thing, once."""
        return await self._post("/api/auth/ticket", TicketWanted(purpose=purpose), TicketAnswer)
