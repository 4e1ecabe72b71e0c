"""The wire of MCP: versions, what a message must look like, and how it is answered.

Written here and not taken from the SDK: a stateless answer is one JSON-RPC object, while the SDK
makes a session with tasks and queues for each request, and has its own doors and its own log. The
official client is what proves that this is the protocol.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from noetl import __version__
from noetl.edge.reading import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

HANDSHAKES: Final = ("2025-06-18", "2025-11-25")
"""Versions that begin with `initialize`."""
MODERN: Final = "2026-07-28"
"""Each request says everything about itself."""
VERSIONS: Final = (*HANDSHAKES, MODERN)
TASKS: Final = "io.modelcontextprotocol/tasks"
"""Tasks are an extension in the modern version, and a capability in the one before."""
WITH_TASKS: Final = "2025-11-25"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

_META: Final = "io.modelcontextprotocol/"
_STATUS: Final = {
    PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400, HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400, METHOD_NOT_FOUND: 404,
}  # fmt: skip
_ALWAYS: Final = frozenset({PARSE_ERROR, INVALID_REQUEST, UNSUPPORTED_VERSION})
"""What has this status in every version: no call was understood."""
_INSTRUCTIONS: Final = (
    "Each tool is a NoETL playbook; its result has an execution_id. A status RUNNING means that it "
    "goes on: look with noetl_get_execution."
)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class RpcFault(Exception):
    """A message that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, understood."""

    id: str | int
    method: str
    version: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        """Whether it says everything about itself."""
        return self.version == MODERN

    @property
    def meta(self) -> Mapping[str, Any]:
        """What it says about itself."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def has_tasks(self) -> bool:
        """Whether the caller knows what a task is."""
        capabilities = self.meta.get(f"{_META}clientCapabilities")
        extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        return self.is_modern and isinstance(extensions, dict) and TASKS in extensions

    def text(self, name: str) -> str:
        """A parameter that is a text."""
        found = self.params.get(name)
        if not isinstance(found, str):
            raise RpcFault(INVALID_PARAMS, f"`{name}` must be a string")
        return found


def read(body: bytes, headers: Mapping[str, str]) -> Call | None:
    """The request of a body; none for a notification, which nobody answers."""
    try:
        message = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RpcFault(PARSE_ERROR, "the body is not JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcFault(INVALID_REQUEST, "the body must be one JSON-RPC request or notification")
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        raise RpcFault(INVALID_REQUEST, "the body must be one JSON-RPC request or notification")
    version = headers.get("mcp-protocol-version") or HANDSHAKES[0]
    if version not in VERSIONS:
        raise unsupported(version)
    if "id" not in message:
        return None
    request_id = message["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise RpcFault(INVALID_REQUEST, "`id` must be a string or a whole number")
    call = Call(id=request_id, method=method, version=version, params=params)
    if call.is_modern:
        _must_agree(call, headers)
    return call


def id_of(body: bytes) -> str | int | None:
    """The id of a body that is refused, as far as it can be read."""
    try:
        found = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    given = found.get("id") if isinstance(found, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def unsupported(version: str) -> RpcFault:
    """A version that we do not speak."""
    data = {"supported": list(VERSIONS), "requested": version[:64]}
    return RpcFault(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _must_agree(call: Call, headers: Mapping[str, str]) -> None:
    """Headers and body say the same, so that whoever stands between may go by the headers."""
    meta = call.params.get("_meta")
    names = (f"{_META}protocolVersion", f"{_META}clientCapabilities")
    if not isinstance(meta, dict) or any(name not in meta for name in names):
        raise RpcFault(INVALID_PARAMS, f"params._meta must have {names[0]} and {names[1]}")
    if meta[names[0]] != call.version:
        raise RpcFault(HEADER_MISMATCH, "mcp-protocol-version is not the version of the body")
    if headers.get("mcp-method") != call.method:
        raise RpcFault(HEADER_MISMATCH, "mcp-method is not the method of the body")
    name = call.params.get("name") if call.method == "tools/call" else None
    if name is not None and _plain(headers.get("mcp-name")) != name:
        raise RpcFault(HEADER_MISMATCH, "mcp-name is not the name of the body")


def _plain(value: str | None) -> str | None:
    """A header as it was meant: what is no plain text comes in base64."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


# ------------------------------------------------------------------------------ answers


def greeting(call: Call) -> dict[str, Any]:
    """The answer to `initialize`: the version that was asked for, or the newest of ours."""
    asked = call.params.get("protocolVersion")
    version = asked if asked in HANDSHAKES else HANDSHAKES[-1]
    tasks: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    capabilities: dict[str, Any] = {"tools": {"listChanged": False}}
    return {
        "protocolVersion": version,
        "capabilities": capabilities | ({"tasks": tasks} if version == WITH_TASKS else {}),
        "serverInfo": _server(),
        "instructions": _INSTRUCTIONS,
    }


def discovery() -> dict[str, Any]:
    """The answer to `server/discover`."""
    return {
        "supportedVersions": list(VERSIONS),
        "capabilities": {"tools": {"listChanged": False}, "extensions": {TASKS: {}}},
        "instructions": _INSTRUCTIONS,
        "_meta": {f"{_META}serverInfo": _server()},
        **cached(60_000),
    }


def cached(ttl_ms: int) -> dict[str, Any]:
    """How long an answer may be used again, by the caller alone."""
    return {"ttlMs": ttl_ms, "cacheScope": "private"}


def _server() -> dict[str, str]:
    return {"name": "noetl-gateway", "title": "NoETL", "version": __version__}


def answered(call: Call, result: Mapping[str, Any]) -> bytes:
    """The answer to a request."""
    body = {"resultType": "complete", **result} if call.is_modern else result
    return _encode({"jsonrpc": "2.0", "id": call.id, "result": body})


def notified(method: str, params: Mapping[str, Any]) -> bytes:
    """Something that is told meanwhile."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def failed(request_id: str | int | None, fault: RpcFault) -> bytes:
    """The answer to a message that is an error."""
    error: dict[str, Any] = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def refused(request_id: str | int | None, fault: RpcFault, *, is_modern: bool) -> Response:
    """An error as a whole answer; the modern version has statuses for them."""
    is_shown = is_modern or fault.code in _ALWAYS
    status = _STATUS.get(fault.code, 200) if is_shown else 200
    return Response(failed(request_id, fault), status_code=status, media_type=JSON)
