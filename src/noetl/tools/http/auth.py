"""Credentials as what proves a request: headers, and a certificate of our own."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.auth import credential
from noetl.tools.base import ToolError
from noetl.tools.http.tls import FIELDS, Tls

if TYPE_CHECKING:
    import httpx

    from noetl.tools.base import ToolContext

    Google = Callable[[Mapping[str, Any], str], Awaitable[str]]
    """Gives a token for the fields of a credential and a scope."""

_TYPES: Final = ("bearer", "basic", "api_key", "gcp_adc", "tls", "none")
# The first field that a credential has tells its type when it does not say so itself.
_TELLING: Final = (
    ("token", "bearer"),
    ("access_token", "bearer"),
    ("key", "api_key"),
    ("api_key", "api_key"),
    ("username", "basic"),
    ("user", "basic"),
    ("value", "bearer"),
)
_SAME: Final = {
    "oauth2": "bearer", "secret": "bearer", "apikey": "api_key", "gcs": "gcp",
}  # fmt: skip
_STORED: Final = frozenset({*_TYPES, *_SAME, "gcp", "mcp"})
_GOOGLE: Final = ".googleapis.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Who asks; never shown."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Tls | None = None


async def proof_of(
    auth: Any,  # noqa: ANN401 - an alias or a map
    ctx: ToolContext,
    url: httpx.URL,
    google: Google,
) -> Proof:
    """What proves who asks; its values are secrets from now on."""
    if auth is None:
        return Proof()
    tls, fields = await _fields(auth, ctx)
    kind = _kind(fields)
    if kind == "tls":
        tls, made = Tls.of(fields), {}
    elif kind in {"gcp", "gcp_adc"}:
        made = await _google(fields, kind, url, google)
    else:
        made = _headers(fields, "none" if kind is None and tls is not None else kind)
    ctx.redactor.add(*_secrets(fields), *made.values())
    if tls is not None:
        ctx.redactor.add(*(text for text in (tls.private_key, tls.passphrase) if text))
    return Proof(headers=made, tls=tls)


async def auth_headers(auth: Any, ctx: ToolContext) -> dict[str, str]:  # noqa: ANN401 - see above
    """The headers alone, for tools that speak HTTP in their own way; no cloud, no certificate."""
    if auth is None:
        return {}
    _, fields = await _fields(auth, ctx)
    made = _headers(fields, _kind(fields))
    ctx.redactor.add(*_secrets(fields), *made.values())
    return made


def _kind(fields: Mapping[str, Any]) -> str | None:
    kind = fields.get("type") or next((t for name, t in _TELLING if name in fields), None)
    return None if kind is None else _SAME.get(str(kind), str(kind))


async def _fields(auth: Any, ctx: ToolContext) -> tuple[Tls | None, dict[str, Any]]:  # noqa: ANN401 - see above
    """The fields of the credential and the task's own, which win; certificates apart."""
    if isinstance(auth, str):
        return None, await _stored(auth, ctx)
    if not isinstance(auth, Mapping):
        raise _invalid("an alias or a map")
    own = {name: value for name, value in auth.items() if value is not None}
    alias = own.pop("credential", None)
    if alias is None:
        return None, own
    stored = await _stored(str(alias), ctx)
    if stored.get("type") != "tls":
        return None, {**stored, **own}
    return Tls.of(stored), own  # beside a certificate, the task may show a token


async def _stored(alias: str, ctx: ToolContext) -> dict[str, Any]:
    found = await credential(alias, ctx)
    kind = found.get("type")
    if kind is not None and kind not in _STORED:
        message = f"/auth: `{alias}` is of type {kind}, which proves nothing to a web server: "
        message += "name a credential of type bearer, basic, api_key, oauth2, gcp or tls"
        raise ToolError("auth", "credential_type", message)
    return found


async def _google(
    fields: Mapping[str, Any], kind: str, url: httpx.URL, google: Google
) -> dict[str, str]:
    scopes = fields.get("scopes") or fields.get("scope") or ""
    scope = scopes if isinstance(scopes, str) else " ".join(map(str, scopes))
    account = {} if kind == "gcp_adc" else fields
    is_machine = not ({"service_account", "service_account_json", "private_key"} & account.keys())
    if is_machine and not (url.scheme == "https" and url.host.endswith(_GOOGLE)):
        message = f"the identity of this machine is shown to https://*{_GOOGLE} only"
        raise _invalid(f"{message}; use a credential of type gcp with a service account")
    return {"authorization": f"Bearer {await google(account, scope)}"}


def _headers(fields: Mapping[str, Any], kind: str | None) -> dict[str, str]:
    if kind == "none":
        return {}
    if kind == "mcp":
        token, more = fields.get("token"), fields.get("headers") or {}
        made = {str(name).lower(): str(value) for name, value in dict(more).items()}
        return {**made, **({"authorization": f"Bearer {token}"} if token else {})}
    if kind == "bearer":
        token = _field(fields, "token", "access_token", "value", "key")
        return {"authorization": f"Bearer {token}"}
    if kind == "basic":
        pair = f"{_field(fields, 'username', 'user')}:{_field(fields, 'password')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"}
    if kind == "api_key":
        header = str(fields.get("header") or "X-API-Key").lower()
        return {header: _field(fields, "key", "api_key", "token", "value")}
    raise _invalid(f"the type {kind!r} is none of {', '.join(_TYPES)}")


def _field(fields: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if fields.get(name) not in {None, ""}:
            return str(fields[name])
    raise ToolError("auth", "auth_required", f"/auth/{names[0]}: is needed")


def _secrets(fields: Mapping[str, Any]) -> list[str]:
    names = {"token", "access_token", "password", "key", "api_key", "value", *FIELDS} - {
        "cert",
        "ca",
    }
    return [str(fields[name]) for name in sorted(names) if fields.get(name)]


def _invalid(said: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/auth: {said}")
