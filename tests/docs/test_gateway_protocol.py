"""Every message, method, field, code and limit of the gateway stands on the page about them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.api.gateway import (
    MOST_CALLBACK_BYTES,
    Accepted,
    CallbackAnswer,
    DataRef,
    RequestDocument,
    Wish,
)
from noetl.bus import streams
from noetl.gateway import declaring, errors, frames, limits, paths, rpc, signing, sse, ws
from noetl.gateway.graphql import conversation, runs, socket
from noetl.gateway.graphql import limits as of_graphql
from noetl.gateway.graphql.schema import make_schema
from noetl.gateway.hub import presence, stream, watches, wheel
from noetl.gateway.hub.stream import Recovery
from noetl.gateway.requests import outcomes, progress, record, starting
from noetl.gateway.routes import requests
from noetl.gateway.tickets import PURPOSES, TTL_S
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "explanation" / "gateway-protocol.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
NAMED = set(re.findall(r"`([^`]+)`", PROSE)) | set(re.findall(r'"(\w+)"', PROSE))
TABLED = set(re.findall(r"^\| (-?\d+) \|", PAGE, re.MULTILINE))
MIB = 1 << 20


def texts(module: Any) -> set[str]:
    """The names that a module has for texts of its wire."""
    return {
        value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)
    }


def fields(kind: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def params(frame: bytes) -> set[str]:
    return set(msgspec.json.decode(frame)["params"])


def nodes(*folders: str) -> Iterator[ast.AST]:
    """The source of the gateway, or of folders of it."""
    source = ROOT / "src" / "noetl" / "gateway"
    for path in sorted(source.rglob("*.py")):
        first = path.relative_to(source).parts[0]
        if first in folders or not (folders or first == "mcp"):  # MCP has codes of its own
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def numbers(least: int, most: int) -> set[str]:
    """Whole numbers of the source."""
    found = set()
    for node in nodes():
        is_minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        value = node.operand if is_minus else node
        if isinstance(value, ast.Constant) and type(value.value) is int:
            number = -value.value if is_minus else value.value
            found |= {str(number)} if least <= number <= most else set()
    return found


def reasons() -> set[str]:
    """What streams are ended with, but for those that their client has left."""
    found = set()
    for node in nodes("hub"):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            found |= {node.args[0].value} if name in {"Ending", "drop", "closed"} else set()
    return found - {"gone"}


def calls() -> rpc.Calls:
    nobody: Any = None
    return rpc.Calls(hub=nobody, requests=nobody, limits=nobody, log=nobody)


def schema_fields() -> set[str]:
    made = make_schema()
    kinds = (made.query_type, made.mutation_type, made.subscription_type)
    return {name for kind in kinds if kind is not None for name in kind.fields}


ROW = {"execution_id": "1", "event_type": "step.exit"}
FIRST = frames.init(client_id="c", epoch="e", expires_at=None, recovery={}, pending=[])
WORDS = {
    "messages": texts(frames),
    "methods": set(calls()._methods),  # noqa: SLF001 - all of them
    "fields of init": {*FIRST, *frames.CAPABILITIES, *Recovery().told()},
    "fields of execute": fields(Wish) | fields(Accepted),
    "fields of other calls": {
        name
        for kind in (rpc.Initialize, rpc._Cancel, rpc._Status, rpc._Watch, rpc._Ack)  # noqa: SLF001 - all of them
        for name in fields(kind)
    },
    "fields of messages": {
        *params(frames.state(ROW, "r")), *params(frames.progress("r", "e")), "eventId",
    },
    "fields of a request": fields(RequestDocument) | fields(DataRef) | {"dataRef"},
    "states of a request": set(msgspec.structs.fields(RequestDocument)[3].type.__args__),
    "answers to callbacks": set(msgspec.structs.fields(CallbackAnswer)[0].type.__args__),
    "purposes of tickets": set(PURPOSES),
    "channels": set(watches.CHANNELS),
    "reasons of an end": reasons(),
    "injected": set(starting._INJECTED),  # noqa: SLF001 - all of them
    "graphql": schema_fields(),
    "graphql codes": {*errors._WORDS.values(), "CONFLICT", "UPSTREAM"},  # noqa: SLF001 - all of them
    "subprotocols": {ws.SUBPROTOCOL, socket.SUBPROTOCOL},
}  # fmt: skip


@pytest.mark.parametrize("kind", WORDS)
def test_every_word_of_the_protocol_stands_on_the_page(kind) -> None:
    states = set(re.findall(r"--> (\w+)", PAGE)) if kind == "states of a request" else set()
    assert WORDS[kind] - NAMED - states == set()


def test_every_code_of_json_rpc_stands_on_the_page_and_no_other() -> None:
    assert numbers(-32768, -32000) == {code for code in TABLED if code.startswith("-")}


def test_every_close_code_stands_on_the_page_and_no_other() -> None:
    known = {
        str(value) for name, value in vars(stream).items()
        if name.isupper() and isinstance(value, int) and 1000 < value < 5000
    }  # fmt: skip
    known |= {str(stream.NORMAL), str(declaring.CLOSED)}
    assert numbers(4400, 4499) <= known
    assert known == {code for code in TABLED if not code.startswith("-")}


def test_the_limits_of_the_page_are_those_of_the_gateway() -> None:
    rates = {scope: _rate(rate) for scope, rate in limits.SCOPES.items()}
    pace, log, most = wheel.Pace(heartbeat_s=1, idle_s=1), streams.CLIENTS, of_graphql
    wanted = {
        "a message, or a body of `/rpc` and `/graphql`": f"{rpc.MOST_BYTES // MIB} MiB",
        "messages on one WebSocket": rates["message"],
        "calls at once on one WebSocket": f"{ws.MOST_CALLS}",
        "until `initialize` or `connection_init`": f"{ws.INITIALIZE_S:g} s",
        "what waits for a client that does not read": (
            f"{stream.MOST_MESSAGES} messages or {stream.MOST_BYTES // MIB} MiB"
        ),
        "one write to a client": f"{wheel.STUCK_S:g} s",
        "life of a stream": f"{pace.lifetime_s / 3600:g} h, 10 % more or less",
        "`retry` of a stream": "{}..{} ms".format(*sse.RETRY_MS),
        "log of a client": f"{log.max_msgs_per_subject} messages, {log.max_age_s / 60:g} minutes",
        "clients of a session": f"{presence.MOST_OF_SESSION}",
        "clients of a person": f"{presence.MOST_OF_USER}",
        "runs that a client watches": f"{watches.MOST_RUNS}",
        "life of a ticket": f"{TTL_S} s",
        "`timeoutSecs`": f"1..{starting.MOST_DEADLINE_S}",
        "`wait` of a request": f"{requests.MOST_WAIT_S} s",
        "`wait` of `executePlaybook`": f"{runs.MOST_WAIT_S} s",
        "life of an `idempotencyKey`": f"{record.KEY_LIFE_S / 3600:g} h",
        "a result on a stream": f"{outcomes.MOST_INLINE // 1024} KiB",
        "progress of a request": f"{1 / progress.EVERY_S:g}/s",
        "a body of a callback": f"{MOST_CALLBACK_BYTES // MIB} MiB",
        "callbacks of a request": rates["callback"],
        "callbacks from one address that are not let in": rates["callback_address"],
        "starts of a person": rates["execute"],
        "other calls of a session": rates["call"],
        "streams that a client opens": rates["connect"],
        "sign-ins of an account": rates["login_account"],
        "sign-ins from one address": rates["login_address"],
        "a body of a sign-in": f"{signing.MOST_BYTES // 1024} KiB",
        "a body through `/noetl/`": f"{paths.MOST_BYTES // MIB} MiB",
        "a body through `/noetl/plugins`": f"{paths.target_of('plugins/x').most_bytes // MIB} MiB",
        "a body through `/noetl/result`": f"{paths.target_of('result/1').most_bytes // MIB} MiB",
        "depth of a GraphQL document": f"{most.MOST_DEPTH}",
        "tokens of a GraphQL document": f"{most.MOST_TOKENS}",
        "aliases of a GraphQL document": f"{most.MOST_ALIASES}",
        "root fields of a GraphQL document": f"{most.MOST_ROOTS}",
        "cost of a GraphQL document": f"{most.MOST_COST}",
        "time of a GraphQL document": f"{most.MOST_S:g} s",
        "subscriptions on one WebSocket of GraphQL": f"{conversation.MOST_OPERATIONS}",
    }
    table = PAGE.split("## Limits")[1]
    assert dict(re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE)[1:]) == wanted


def _rate(rate: limits.Rate) -> str:
    often = f"{rate.per_s:g}/s" if rate.per_s >= 1 else f"{rate.per_s * 60:g}/min"
    return f"{often}, {rate.burst:g} at once"
