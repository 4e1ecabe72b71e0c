"""Canaries: secrets that nobody may see, the playbooks that handle them, and the search for them.

A case is one playbook and the secrets that it is given. To cover another tool, add a case.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from textwrap import indent
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: canary/{name}}}\n"
# Steps that say what they were given: as a result, in the log, in an error, after a retry.
TELLING = """
import sys
progress(0.5, f"half of {secret}")
print(secret)
print("stderr", secret, file=sys.stderr)
result = {"said": secret, secret: [secret], "long": ["x" * 100, secret] * 800}
"""
FAILING = """
print("before", secret)
raise ValueError(f"cannot use {secret}")
"""
SLOW = """
import subprocess, time
print("slow", secret, flush=True)
subprocess.run(["sleep", "1"])
time.sleep(30)
"""


def canary(name: str) -> str:
    """A secret that is found wherever it goes; base64, URL and JSON have to spell it otherwise."""
    return f'{name}-/+"?&-{sha256(name.encode()).hexdigest()[:12]}'


def forms(secret: str) -> dict[str, str]:
    """The spellings of a secret."""
    raw = secret.encode()
    return {
        "raw": secret,
        "json": json.dumps(secret)[1:-1],
        "json twice": json.dumps(json.dumps(secret)[1:-1])[1:-1],
        "base64": b64encode(raw).decode().rstrip("="),
        "base64url": urlsafe_b64encode(raw).decode().rstrip("="),
        "url": quote(secret, safe=""),
        "url plus": quote_plus(secret),
        "hex": raw.hex(),
        "repr": repr(secret)[1:-1],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A playbook, what it is given, and how it is to end."""

    name: str
    steps: str
    ends: str = "COMPLETED"
    above: str = ""
    """Keys of the playbook besides its steps."""
    payload: dict[str, Any] = field(default_factory=dict)
    credentials: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    """Every secret text in it."""
    is_given: bool = False
    """The author gives it to a process of his own, whose environment has it."""

    @property
    def text(self) -> str:
        """The playbook."""
        return HEAD.format(name=self.name) + self.above + "workflow:\n" + self.steps


def python(name: str, code: str, value: str, more: str = "") -> str:
    """A step that gets a secret and says it."""
    body = indent(code.strip(), "      ")
    return (
        f"- step: {name}\n  tool:\n    kind: python\n    input: {{secret: '{value}'}}\n"
        f"    code: |\n{body}\n{more}"
    )


# One secret in each field of each type that is one.
_AWS = {
    "access_key_id": "AKIACANARY",
    "secret_access_key": "?",
    "session_token": "?",
    "external_id": "?",
}
_GCP = {
    "project": "p1",
    "service_account": {"client_email": "a@b.example", "private_key": "?"},
    "secret_access_key": "?",
}
TYPES: dict[str, dict[str, Any]] = {
    "postgres": {"host": "db.example.net", "user": "app", "password": "?", "ca": "?"},
    "bearer": {"token": "?"},
    "api_key": {"key": "?"},
    "basic": {"username": "app", "password": "?"},
    "tls": {"cert": "?", "key": "?", "passphrase": "?", "ca": "?"},
    "oauth2": {"client_id": "app", "client_secret": "?", "refresh_token": "?", "password": "?"},
    "nats": {"url": "nats://broker.example.net:4222", "password": "?", "token": "?"},
    "kafka": {"brokers": ["k.example.net:9092"], "sasl_username": "app", "sasl_password": "?"},
    "pubsub": {
        "endpoint": "https://p.example.net",
        "token": "?",
        "service_account": {"private_key": "?"},
    },
    "snowflake": {
        "account": "a1",
        "user": "app",
        "password": "?",
        "private_key": "?",
        "private_key_passphrase": "?",
    },
    "aws": _AWS,
    "s3": _AWS,
    "gcp": _GCP,
    "gcs": _GCP,
    "azure": {"tenant_id": "t1", "client_id": "app", "client_secret": "?"},
    "vault": {"url": "https://v.example.net", "token": "?"},
    "kubernetes": {"url": "https://k.example.net", "token": "?", "ca": "?"},
    "mysql": {"host": "m.example.net", "user": "app", "password": "?"},
    "mcp": {"url": "https://m.example.net", "token": "?", "headers": {"X-Key": "?"}},
    "secret": {"value": "?"},
}


def planted(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The secrets of a value, and the names of their canaries."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from planted(item, f"{name}.{key}")
    elif value == "?":
        yield name, canary(name)


def filled(value: Any, name: str) -> Any:
    """The value with canaries in it."""
    if isinstance(value, dict):
        return {key: filled(item, f"{name}.{key}") for key, item in value.items()}
    return canary(name) if value == "?" else value


def of_types(url: str) -> Iterator[Case]:
    """A credential of each type, read through the keychain and told by code.

    The client of `oauth2` never leaves the server, which asks for a token and is refused.
    """
    for kind, plain in TYPES.items():
        name = f"type_{kind}"
        fields = {**plain, "token_url": f"{url}/refused"} if kind == "oauth2" else plain
        yield Case(
            name=name,
            ends="FAILED" if kind == "oauth2" else "COMPLETED",
            above=f"keychain: [{{name: own, kind: credential, credential: {name}}}]\n",
            steps=python("start", TELLING.replace("secret: [secret], ", ""), "{{ keychain.own }}"),
            credentials={name: (kind, filled(fields, name))},
            secrets=tuple(secret for _, secret in planted(fields, name)),
        )


def of_keychain() -> Iterator[Case]:
    """Kinds of the keychain that need nobody else."""
    for kind, shape in {
        "static": 'map: {token: "{{ workload.it }}"}',
        "bearer": 'token: "{{ workload.it }}"',
        "api_key": 'token: "{{ workload.it }}"',
        "basic": 'map: {username: app, password: "{{ workload.it }}"}',
    }.items():
        name = f"keychain_{kind}"
        yield Case(
            name=name,
            above=f"inputs: {{it: {{type: string, secret: true}}}}\n"
            f"keychain: [{{name: own, kind: {kind}, {shape}}}]\n",
            steps=python("start", TELLING.replace("secret: [secret], ", ""), "{{ keychain.own }}"),
            payload={"it": canary(name)},
            secrets=(canary(name),),
        )


def of_inputs() -> Iterator[Case]:
    """Secret inputs in every way that a step can end."""
    above = "inputs: {it: {type: string, secret: true}}\n"
    again = (
        "    spec: {policy: {rules: [{when: '{{ output.error and _attempt < 3 }}', "
        "then: {do: retry, attempts: 3, delay: 0.05}}]}}\n"
    )
    endings = {
        "done": (TELLING, "COMPLETED", ""),
        "failed": (FAILING, "FAILED", ""),
        "retried": (FAILING, "FAILED", again),
        "late": (SLOW, "FAILED", "    timeout: 2\n"),
    }
    for word, (code, ends, more) in endings.items():
        name = f"input_{word}"
        yield Case(
            name=name,
            above=above,
            ends=ends,
            steps=python("start", code, "{{ workload.it }}", more),
            payload={"it": canary(name)},
            secrets=(canary(name),),
        )
    name = "input_set"
    yield Case(
        name=name,
        above=above,
        steps=python("start", "result = secret", "{{ workload.it }}",
                     "    set: {ctx.kept: '{{ output.data }}'}\n  next: {arcs: [{step: next}]}\n")
        + python("next", "result = secret", "{{ ctx.kept }} {{ workload.it }}"),
        payload={"it": canary(name)},
        secrets=(canary(name),),
    )  # fmt: skip


def of_tools(url: str) -> Iterator[Case]:
    """Tools that get a secret in their own way; `url` answers with what it heard."""
    above = "inputs: {it: {type: string, secret: true}}\n"

    def one(name: str, tool: str, ends: str = "COMPLETED", **more: Any) -> Case:
        return Case(
            name=name, ends=ends, steps=f"- step: start\n  tool: {tool}\n",
            secrets=(canary(name),), **({"above": above, "payload": {"it": canary(name)}} | more),
        )  # fmt: skip

    said = '"{{ workload.it }}"'
    env = f"env: {{IT: {said}}}"
    loud, broken = "echo $IT; echo $IT >&2", "echo $IT; exit 3"
    yield one("shell", f"{{kind: shell, cmd: '{loud}', {env}}}", is_given=True)
    yield one("shell_failed", f"{{kind: shell, cmd: '{broken}', {env}}}", "FAILED", is_given=True)
    params = f"params: {{it: {said}}}"
    yield one("sqlite", f"{{kind: sqlite, path: c.db, command: 'select :it as it', {params}}}")
    yield one("duckdb", f"{{kind: duckdb, command: 'select $it as it', {params}}}")
    wrong = "select missing('{{ workload.it }}')"
    yield one("duckdb_failed", f'{{kind: duckdb, command: "{wrong}"}}', "FAILED")
    told = {"request_id": "r-1", "gateway_url": url, "callback_token": canary("gateway")}
    proof = "{callback_token: {type: string, secret: true}, request_id: {type: string}"
    given = f"inputs: {proof}, gateway_url: {{type: string}}}}\n"
    yield one("gateway", "{kind: gateway, data: 1}", "FAILED", above=given, payload=told)
    for kind, fields in {
        "bearer": {"token": "?"},
        "basic": {"username": "app", "password": "?"},
        "api_key": {"key": "?"},
    }.items():
        for word, ends, spec in (
            ("ok", "COMPLETED", ""),
            ("broken", "FAILED", ", spec: {retry: {attempts: 2, delay: 0.05}}"),
            ("blob", "COMPLETED", ", response_type: blob"),
        ):
            name = f"http_{kind}_{word}"
            yield Case(
                name=name,
                ends=ends,
                steps=f"- step: start\n  tool: {{kind: http, url: '{url}/{word}', auth: {name}"
                f"{spec}}}\n",
                credentials={name: (kind, filled(fields, f"{name}"))},
                secrets=tuple(secret for _, secret in planted(fields, name)),
            )


def of_far(url: str) -> Iterator[Case]:
    """Tools whose other side refuses them, or is not there."""
    at = {"host": "127.0.0.1", "port": 1, "user": "app", "database": "d", "password": "?"}
    keys = {
        "access_key_id": "AKIACANARY",
        "secret_access_key": "?",
        "region": "eu-1",
        "endpoint": url,
    }
    source = "{kind: postgres, auth: far_transfer, query: 'select 1'}"
    for name, kind, fields, tool in (
        ("far_postgres", "postgres", at, "kind: postgres, command: 'select 1'"),
        ("far_nats", "nats", {"url": "nats://127.0.0.1:1", "user": "app", "password": "?"},
         "kind: nats, operation: kv_get, bucket: b, key: k"),
        ("far_s3", "aws", keys, "kind: s3, operation: get, bucket: b, key: k"),
        ("far_subscription", "nats", {"url": "nats://127.0.0.1:1", "user": "app", "password": "?"},
         "kind: subscription, source: nats, stream: S, consumer: c"),
        ("far_mcp", "mcp", {"url": f"{url}/broken", "token": "?"},
         f"kind: mcp, endpoint: '{url}/broken', method: tools/list"),
        ("far_transfer", "postgres", at,
         f"kind: transfer, source: {source}, target: {{kind: sqlite, path: t.db, table: t}}"),
    ):  # fmt: skip
        auth = "" if "transfer" in name else f", auth: {name}"
        yield Case(
            name=name,
            ends="FAILED",
            steps=f"- step: start\n  tool: {{{tool}{auth}, timeout: 20}}\n",
            credentials={name: (kind, filled(fields, name))},
            secrets=tuple(secret for _, secret in planted(fields, name)),
        )


def of_names() -> Iterator[Case]:
    """A secret that a task gives a name."""
    fields = {"value": "?"}
    yield Case(
        name="named",
        steps="- step: start\n  tool: {kind: secrets, provider: wallet, name: named}\n"
        "  next: {arcs: [{step: next}]}\n" + python("next", TELLING, "{{ keychain.named.value }}"),
        credentials={"named": ("secret", filled(fields, "named"))},
        secrets=(canary("named.value"),),
    )


def of_children() -> Iterator[Case]:
    """A secret that a run hands on to another one."""
    above = "inputs: {it: {type: string, secret: true}}\n"
    yield Case(
        name="handed_on",
        above=above,
        steps="- step: start\n  tool: {kind: playbook, path: canary/input_done, "
        "input: {it: '{{ workload.it }}'}}\n",
        payload={"it": canary("handed_on")},
        secrets=(canary("handed_on"),),
    )


def of_places() -> Iterator[Case]:
    """Kinds that keep what they are given, or hand it to the engine."""
    above = "inputs: {it: {type: string, secret: true}}\n"
    said = '"{{ workload.it }}"'
    fetch = '- step: next\n  tool: {kind: result_fetch, ref: "{{ start.uri }}"}\n'
    many = f"[{{path: canary/input_done, input: {{it: {said}}}}}]"
    lake = "catalog: l.ducklake, data_path: 'file://lake', timeout: 60"
    wrong = "select missing('{{ workload.it }}')"
    for name, tool, ends, more in (
        ("artifact", f"kind: artifact, action: put, input: {{data: {{it: {said}}}}}", "COMPLETED",
         f"  next: {{arcs: [{{step: next}}]}}\n{fetch}"),
        ("noop", f"kind: noop, result: {said}", "COMPLETED", ""),
        ("wait", f"kind: wait, seconds: 0.01, input: {{it: {said}}}", "COMPLETED", ""),
        ("playbooks", f"kind: playbooks, items: {many}", "COMPLETED", ""),
        ("ducklake", f'kind: ducklake, {lake}, command: "{wrong}"', "FAILED", ""),
    ):  # fmt: skip
        yield Case(
            name=name,
            above=above,
            ends=ends,
            steps=f"- step: start\n  tool: {{{tool}}}\n{more}",
            payload={"it": canary(name)},
            secrets=(canary(name),),
        )


def cases(url: str) -> list[Case]:
    """Every case that needs nobody else; one that others call stands before them."""
    return [
        *of_inputs(),
        *of_types(url),
        *of_keychain(),
        *of_tools(url),
        *of_far(url),
        *of_names(),
        *of_children(),
        *of_places(),
    ]


def hits(sinks: dict[str, str], secrets: list[str]) -> list[tuple[str, str, str]]:
    """Where which secret was found, and how it is spelt there."""
    return [
        (sink, secret, form)
        for sink, text in sinks.items()
        for secret in secrets
        for form, spelt in forms(secret).items()
        if spelt in text
    ]
