"""Signing in through an issuer: the way there, the way back, and the exchange for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from noetl.api.identity import Login
from noetl.api.sign_in import CodeExchange, SignInAnswer
from noetl.edge.declared import Parameter
from noetl.edge.reading import read
from noetl.gateway.cookies import SIGN_IN, Jar
from noetl.gateway.declaring import PUBLIC, Declared, route
from noetl.gateway.oidc.flow import STATE_S
from noetl.gateway.signing import MOST_BYTES, UNKEPT, answer_of, asked, signing_in, whence

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from noetl.api.identity import Identity
    from noetl.gateway.gate import Gate

_ONE: Final = "/api/auth/oidc/{provider}"
_CODES: Final = ("unknown_provider", "bad_state", "code_refused", "bad_signature", "bad_claims",
                 "auth_unavailable", "rate_limited")  # fmt: skip


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    return [
        route(gate, "GET", f"{_ONE}/start", _start, PUBLIC, Declared(
            about="Send a browser to an issuer to sign in.",
            status=302, codes=("unknown_provider", "auth_unavailable", "rate_limited"),
            query=(Parameter("return_to", "The page of ours to come back to."),))),
        route(gate, "GET", f"{_ONE}/callback", _callback, PUBLIC, Declared(
            about="Take a browser back from an issuer and begin its session.",
            status=302, codes=_CODES, takes_any_query=True)),
        route(gate, "POST", f"{_ONE}/exchange", _exchange, PUBLIC, Declared(
            about="Begin the session of a program on the caller's own machine.",
            body=CodeExchange, answer=SignInAnswer, codes=_CODES)),
    ]  # fmt: skip


async def _start(gate: Gate, request: Request) -> Response:
    gate.limits.take("login_address", gate.peers.address(request))
    name, jar = request.path_params["provider"], Jar.of(request, gate.settings.public_url)
    there = await gate.sign_ins.start(
        name,
        return_to=request.query_params.get("return_to", "/"),
        redirect_uri=f"{_origin(gate, request)}/api/auth/oidc/{name}/callback",
        binding=jar.read(request, SIGN_IN),
    )
    cookie = jar.kept(SIGN_IN, there.binding, STATE_S)
    return RedirectResponse(there.url, 302, headers={**UNKEPT, "Set-Cookie": cookie})


async def _callback(gate: Gate, request: Request) -> Response:
    gate.limits.take("login_address", gate.peers.address(request))
    query, jar = request.query_params, Jar.of(request, gate.settings.public_url)
    back = "/"

    async def let_in() -> SignInAnswer:
        nonlocal back
        name = request.path_params["provider"]
        identity, back = await gate.sign_ins.finish(
            name,
            state=query.get("state", ""),
            code=query.get("code", ""),
            binding=jar.read(request, SIGN_IN),
        )
        return await _begun(gate, request, name, identity)

    made = await signing_in(gate, request, let_in())
    headers = {**UNKEPT, "Set-Cookie": made.headers["set-cookie"]}
    return RedirectResponse(back, 302, headers=headers)


async def _exchange(gate: Gate, request: Request) -> Response:
    gate.limits.take("login_address", gate.peers.address(request))
    body = await read(request, CodeExchange, MOST_BYTES)

    async def let_in() -> SignInAnswer:
        name = request.path_params["provider"]
        identity = await gate.sign_ins.exchange(
            name,
            code=body.code,
            verifier=body.code_verifier,
            redirect_uri=body.redirect_uri,
            nonce=body.nonce,
        )
        return await _begun(gate, request, name, identity, body.session_duration_hours)

    return await signing_in(gate, request, let_in())


async def _begun(
    gate: Gate, request: Request, name: str, identity: Identity, hours: int = 8
) -> SignInAnswer:
    """The session of somebody whom a provider has told of."""
    wish = Login(
        identity=identity,
        tenant=gate.providers.named(name).tenant,
        session_duration_hours=hours,
        **whence(gate, request),
    )
    return answer_of(await asked(gate.upstream.service().login(wish)))


def _origin(gate: Gate, request: Request) -> str:
    """Where browsers reach us."""
    public = gate.settings.public_url.rstrip("/")
    return public or f"{request.scope['scheme']}://{request.headers.get('host', '')}"
