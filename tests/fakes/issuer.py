"""An OpenID provider: discovery, keys, the code flow with PKCE, and keys that rotate.

`Issuer` is the provider itself, an ASGI app; `python -m tests.fakes.issuer` runs it as a process of
its own, and `Process` starts and stops that. What a test wants of it is told under `/control/`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote_plus, unquote_plus, urlencode, urlsplit
from urllib.request import Request as Ask
from urllib.request import urlopen

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.routing import Route

from noetl.clock import SystemClock

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

CLIENT = "noetl gateway"
SECRET = "canary-oidc-secret:/+ 1"  # noqa: S105 - of a stand-in
PERSON = {
    "sub": "issuer|ada",
    "email": "ada@example.org",
    "email_verified": True,
    "name": "Ada Lovelace",
    "groups": ["engineers", "unknown"],
}
_TYPES = {
    "ES256": lambda kid: ECKey.generate_key("P-256", {"kid": kid, "use": "sig"}),
    "RS256": lambda kid: RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}),
    "EdDSA": lambda kid: OKPKey.generate_key("Ed25519", {"kid": kid, "use": "sig"}),
}


class _Registry(jws.JWSRegistry):
    """Signs with whatever a test wants, `none` included."""

    max_header_length = 8192

    def get_alg(self, name):
        return self.algorithms[name]


class Issuer:
    """The provider."""

    def __init__(self, url: str, alg: str = "ES256", clock: Any = None) -> None:
        self.url = url
        self.clock = clock or SystemClock()
        self.alg = alg
        self.person: dict[str, Any] = dict(PERSON)
        self.claims: dict[str, Any] = {}
        """What the next tokens say in the place of what is right."""
        self.is_down = False
        self.seen: dict[str, int] = {}
        self.overrides: dict[str, Any] = {}
        """What discovery says in the place of what is right."""
        self._codes: dict[str, dict[str, str]] = {}
        self._pending: list[str] = []
        """What somebody with the code of a device is told before a token."""
        self._serial = 0
        self.rotate()
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/jwks", self._jwks),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/device", self._device, methods=["POST"]),
                Route("/control/{what}", self._control, methods=["POST"]),
            ]
        )

    def rotate(self, alg: str | None = None) -> None:
        """Sign with another key from now on; the one before is forgotten."""
        self.alg = alg or self.alg
        self._serial += 1
        self.key = _TYPES[self.alg](f"key-{self._serial}")

    def allow_devices(self, error: str = "") -> None:
        """Take sign-ins by a code: pending once, then granted, or refused."""
        self.overrides["device_authorization_endpoint"] = f"{self.url}/device"
        self._pending = ["authorization_pending", *([error] if error else [])]

    def id_token(self, **claims: Any) -> str:
        """A token of the person who is there."""
        now = int(self.clock.now().timestamp())
        told = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, **self.person}
        told |= {**self.claims, **claims}
        return self.signed({name: value for name, value in told.items() if value is not None})

    def signed(self, claims: dict[str, Any], key: Any = None, **header: Any) -> str:
        """Claims under a signature; `header` says how."""
        head = {"alg": self.alg, "kid": self.key.kid, "typ": "JWT", **header}
        body = json.dumps(claims).encode()
        if head["alg"] == "none":
            return f"{_b64(json.dumps(head).encode())}.{_b64(body)}."
        made = key or self.key
        if "crit" in head or head["alg"].startswith("HS"):  # which the library would not sign
            return _by_hand(head, body, made)
        return jws.serialize_compact(
            head, body, made, registry=_Registry(strict_check_header=False)
        )

    # ---------------------------------------------------------------------------- routes

    def _noted(self, name: str) -> Response | None:
        self.seen[name] = self.seen.get(name, 0) + 1
        return PlainTextResponse("away", 503) if self.is_down else None

    async def _discovery(self, _: Request) -> Response:
        told = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.alg],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }
        return self._noted("discovery") or JSONResponse({**told, **self.overrides})

    async def _jwks(self, _: Request) -> Response:
        shown = [self.key.as_dict(private=False), {"kty": "odd", "kid": "of another kind"}]
        return self._noted("jwks") or JSONResponse({"keys": shown})

    async def _authorize(self, request: Request) -> Response:
        """Everybody who comes is the one person, and agrees."""
        away = self._noted("authorize")
        asked = request.query_params
        is_good = (
            asked.get("client_id") == CLIENT
            and asked.get("response_type") == "code"
            and asked.get("code_challenge_method") == "S256"
            and "openid" in asked.get("scope", "").split()
            and asked.get("state")
            and asked.get("nonce")
        )
        if away is not None or not is_good:
            return away or PlainTextResponse("not so", 400)
        code = secrets.token_urlsafe(16)
        self._codes[code] = {
            "redirect_uri": asked["redirect_uri"],
            "challenge": asked["code_challenge"],
            "nonce": asked["nonce"],
        }
        back = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", 302)

    async def _token(self, request: Request) -> Response:
        away = self._noted("token")
        form = {
            name: values[0] for name, values in parse_qs((await request.body()).decode()).items()
        }
        if form.get("grant_type", "").endswith(":device_code"):
            return self._granted(form)
        given = request.headers.get("authorization", "").removeprefix("Basic ")
        name, _, secret = base64.b64decode(given).decode().partition(":")
        if away is not None:
            return away
        if (unquote_plus(name), unquote_plus(secret)) != (CLIENT, SECRET):
            return JSONResponse({"error": "invalid_client"}, 401)
        begun = self._codes.pop(form.get("code", ""), None)
        challenge = _b64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        is_good = (
            begun is not None
            and form.get("grant_type") == "authorization_code"
            and form.get("redirect_uri") == begun["redirect_uri"]
            and challenge == begun["challenge"]
        )
        if not is_good:
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = self.id_token(**{"nonce": begun["nonce"], **self.claims})
        return JSONResponse({"id_token": token, "access_token": "x", "token_type": "Bearer"})

    async def _device(self, request: Request) -> Response:
        is_ours = f"client_id={quote_plus(CLIENT)}" in (await request.body()).decode()
        if not is_ours:
            return JSONResponse({"error": "invalid_client"}, 401)
        return JSONResponse({
            "device_code": "code-of-device", "user_code": "WDJB-MJHT", "interval": 0,
            "verification_uri": f"{self.url}/activate", "expires_in": 60,
        })  # fmt: skip

    def _granted(self, form: dict[str, str]) -> Response:
        """What a device is told that asks for its token."""
        if form.get("device_code") != "code-of-device" or form.get("client_id") != CLIENT:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if self._pending:
            return JSONResponse({"error": self._pending.pop(0)}, 400)
        return JSONResponse({"id_token": self.id_token(), "access_token": "x"})

    async def _control(self, request: Request) -> Response:
        told = json.loads(await request.body() or b"{}")
        what = request.path_params["what"]
        if what == "rotate":
            self.rotate(told.get("alg"))
        elif what == "sign":
            return JSONResponse({"token": self.id_token(**told)})
        elif what == "set":
            for name in ("person", "claims", "is_down", "overrides"):
                setattr(self, name, told.get(name, getattr(self, name)))
        return JSONResponse({"seen": self.seen, "kid": self.key.kid})


def _by_hand(head: dict[str, Any], body: bytes, key: Any) -> str:
    told = f"{_b64(json.dumps(head).encode())}.{_b64(body)}".encode()
    if head["alg"].startswith("HS"):  # the public key as a secret that both would know
        signature = hmac.digest(key.as_pem(private=False), told, f"sha{head['alg'][2:]}")
    else:
        signature = _Registry().get_alg(head["alg"]).sign(told, key)
    return f"{told.decode()}.{_b64(signature)}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Process:
    """The provider as a process of its own, on a free port of this machine."""

    def __init__(self, alg: str = "ES256") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.issuer", alg],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("http://"), "the issuer did not start"

    def tell(self, what: str, **told: Any) -> dict[str, Any]:
        """Have it do something; what it says."""
        ask = Ask(f"{self.url}/control/{what}", json.dumps(told).encode(), method="POST")  # noqa: S310 - of this machine
        with urlopen(ask, timeout=10) as answer:  # noqa: S310 - as above
            return json.loads(answer.read())

    def id_token(self, **claims: Any) -> str:
        """A token of the person who is there."""
        return self.tell("sign", **claims)["token"]

    def visit(self, url: str) -> dict[str, str]:
        """What a browser brings back that goes there: code and state."""
        parts = urlsplit(url)
        connection = socket.create_connection((parts.hostname, parts.port), 10)
        with connection, connection.makefile("rwb") as stream:
            stream.write(f"GET {parts.path}?{parts.query} HTTP/1.0\r\n\r\n".encode())
            stream.flush()
            lines = stream.read().decode().split("\r\n")
        found = [line.partition(": ")[2] for line in lines if line.lower().startswith("location:")]
        assert found, lines[0]
        return {name: values[0] for name, values in parse_qs(urlsplit(found[0]).query).items()}

    def stop(self) -> None:
        """Stop, and wait for the end."""
        self._process.terminate()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    """Serve until somebody ends it."""
    import uvicorn  # noqa: PLC0415 - slow to import, and most tests need none

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    app = Issuer(url, sys.argv[1]).app
    sock.listen(64)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([sock])


if __name__ == "__main__":
    main()
