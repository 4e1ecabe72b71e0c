"""Canaries of tools and keychains whose other side is there: real servers and stand-ins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fakes import oauth, snowflake, vault
from tests.fakes.google import PEM, Google
from tests.security.canaries import TELLING, Case, canary, filled, planted, python

if TYPE_CHECKING:
    from collections.abc import Iterator

LAST_WORD = (
    'import json, os; it = json.dumps({"it": os.environ["IT"]}); '
    'open(os.environ["NOETL_TERMINATION_LOG"], "w").write(it)'
)


class Issuer(oauth.OAuth):
    """Keeps what it hands out."""

    def __init__(self) -> None:
        self.issued: list[str] = []
        super().__init__()

    def answer(self, asked: Any) -> Any:
        found = super().answer(asked)
        self.issued += [found["access_token"], found["refresh_token"]]
        return found


class Identity(Google):
    """Keeps what it hands out."""

    def __init__(self) -> None:
        self.issued: list[str] = []
        super().__init__()

    def answer(self, asked: Any) -> Any:
        found = super().answer(asked)
        self.issued += [found[name] for name in ("id_token", "access_token") if name in found]
        return found


@dataclass
class Neighbours:
    """Stand-ins for the systems that tokens and secrets come from."""

    oauth: Issuer = field(default_factory=Issuer)
    google: Identity = field(default_factory=Identity)
    vault: vault.Vault = field(default_factory=vault.Vault)
    snowflake: snowflake.Snowflake = field(default_factory=snowflake.Snowflake)

    @property
    def issued(self) -> list[str]:
        """Every token that a run was given."""
        return [*self.oauth.issued, *self.google.issued]

    def stop(self) -> None:
        """End all of them."""
        for web in (self.oauth, self.google, self.vault, self.snowflake):
            web.stop()


def of_near(near: dict[str, Any]) -> Iterator[Case]:
    """Tools whose other side is there; `near` says where. NATS refuses another password."""
    table = "{kind: sqlite, path: n.db, table: t, create: true}"
    source = "{kind: postgres, auth: near_transfer, query: 'select 1 as one'}"
    for name, kind, fields, tool, ends in (
        ("near_postgres", "postgres", near["postgres"], "kind: postgres, command: 'select 1'", ""),
        ("near_postgres_failed", "postgres", near["postgres"],
         "kind: postgres, command: 'select 1 / 0'", "FAILED"),
        ("near_transfer", "postgres", near["postgres"],
         f"kind: transfer, source: {source}, target: {table}", ""),
        ("near_nats", "nats", near["nats"],
         "kind: nats, operation: request, subject: $SYS.REQ.USER.INFO", "FAILED"),
        ("near_s3", "aws", near["s3"],
         f"kind: s3, operation: put, bucket: {near['bucket']}, key: k, data: text", ""),
        ("near_gcs", "gcs", near["gcs"],
         f"kind: gcs, operation: put, bucket: {near['gcs_bucket']}, key: k, data: text", ""),
        ("near_mcp", "mcp", near["mcp"],
         f"kind: mcp, endpoint: '{near['mcp']['url']}', method: tools/list", ""),
    ):  # fmt: skip
        auth = "" if "transfer" in name else f", auth: {name}"
        own = {**fields, "user": name} if kind == "postgres" else fields
        yield Case(
            name=name,
            ends=ends or "COMPLETED",
            steps=f"- step: start\n  tool: {{{tool}{auth}, timeout: 20}}\n",
            credentials={name: (kind, filled(own, name))},
            secrets=tuple(secret for _, secret in planted(own, name)),
        )
    said = '"{{ workload.it }}"'
    job = f"kind: container, image: none, runtime: process, timeout: 20, env: {{IT: {said}}}"
    for name, (tool, ends) in {
        "near_container": (f"{job}, command: [sh, -c, 'echo $IT; echo $IT >&2']", "COMPLETED"),
        "near_container_failed": (f"{job}, command: [sh, -c, 'echo $IT >&2; exit 3']", "FAILED"),
        "near_container_word": (f"{job}, command: [python3, -c, '{LAST_WORD}']", "COMPLETED"),
        "near_script": (
            f"kind: script, interpreter: bash, script: 'echo $1', args: [{said}]",
            "COMPLETED",
        ),
        "near_agent": (
            f"kind: agent, framework: custom, entrypoint: 'string:capwords', payload: {said}",
            "COMPLETED",
        ),
    }.items():
        yield Case(
            name=name,
            above="inputs: {it: {type: string, secret: true}}\n",
            ends=ends,
            steps=f"- step: start\n  tool: {{{tool}}}\n",
            payload={"it": canary(name)},
            secrets=(canary(name),),
            is_given=True,
        )


def of_issuers(there: Neighbours) -> Iterator[Case]:
    """Entries of the keychain that the server asks others for."""
    stored = canary("keychain_secret_manager")
    there.vault.kept["secret/own"] = [{"value": stored}]
    client = {
        "client_id": oauth.CLIENT,
        "client_secret": oauth.SECRET,
        "token_url": f"{there.oauth.url}/oauth/token",
    }
    for kind, type_, fields, more, secrets in (
        ("oauth2", "oauth2", client, "", (oauth.SECRET,)),
        ("google_id_token", "gcp", {"service_account": there.google.account},
         ", endpoint: 'https://aud.example.net'", (PEM,)),
        ("secret_manager", "mcp", {"url": there.vault.url, "token": vault.TOKEN},
         ", provider: vault, map: {it: 'own#value'}", (stored, vault.TOKEN)),
    ):  # fmt: skip
        name = f"keychain_{kind}"
        entry = f"name: own, kind: {kind}, auth: {name}{more}"
        yield Case(
            name=name,
            above=f"keychain: [{{{entry}}}]\n",
            steps=python("start", TELLING.replace("secret: [secret], ", ""), "{{ keychain.own }}"),
            credentials={name: (type_, fields)},
            secrets=secrets,
        )


def of_warehouse(there: Neighbours) -> Iterator[Case]:
    """Snowflake, asked well and badly."""
    source = "{kind: snowflake, auth: near_snowflake_transfer, query: 'select 1 as one'}"
    table = "{kind: sqlite, path: s.db, table: t, create: true}"
    for name, tool, ends in (
        ("near_snowflake", "kind: snowflake, command: 'select 1 as a'", ""),
        ("near_snowflake_failed", "kind: snowflake, command: 'select a from nowhere'", "FAILED"),
        ("near_snowflake_transfer",
         f"kind: snowflake_transfer, source: {source}, target: {table}", ""),
    ):  # fmt: skip
        auth = "" if "transfer" in name else f", auth: {name}"
        yield Case(
            name=name,
            ends=ends or "COMPLETED",
            steps=f"- step: start\n  tool: {{{tool}{auth}, timeout: 60}}\n",
            credentials={name: ("snowflake", there.snowflake.fields)},
            secrets=(snowflake.PASSWORD,),
        )
