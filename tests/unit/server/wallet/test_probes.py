"""Trials of credentials, and what a playbook names."""

from __future__ import annotations

import pytest

from noetl.api.credentials import CredentialPut
from noetl.api.problems import Refused
from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.server.wallet.naming import named_in
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, HEAD, scene

DATA = {
    "postgres": {"host": "h"}, "snowflake": {"account": "a"}, "nats": {"url": "nats://x"},
    "aws": {"region": "r"}, "gcp": {"project": "p"}, "bearer": {"token": CANARY},
    "basic": {"username": "u", "password": CANARY}, "api_key": {"key": CANARY},
    "oauth2": {"client_id": "c"}, "mcp": {"url": "https://m"}, "secret": {"value": CANARY},
    "kafka": {"brokers": ["b"]}, "pubsub": {"token": CANARY},
}  # fmt: skip
WHERE = {"test": {"url": "https://x/health", "bucket": "b", "topic": "t", "subscription": "s"}}


@virtually
async def test_every_type_that_can_be_tried_starts_a_run_that_names_the_credential() -> None:
    async with scene() as s:
        for kind in set(DATA) - {"secret"}:
            await s.client.put_credential(
                CredentialPut(name=kind, type=kind, data=DATA[kind], meta=WHERE)
            )
            run = (await s.client.test_credential(kind)).execution_id
            shown = await s.client.execution(run)
            assert shown.path.startswith("system/credential_test/"), kind
            (command,) = await s.r.claim()
            if kind != "oauth2":
                assert (await s.sealed(kind, command))["type"] == kind
            await s.r.done(command)


@virtually
async def test_what_cannot_be_tried_says_so() -> None:
    async with scene() as s:
        for kind in ("secret", "kafka", "pubsub", "bearer", "aws"):
            await s.client.put_credential(CredentialPut(name=kind, type=kind, data=DATA[kind]))
            with pytest.raises(Refused) as caught:
                await s.client.test_credential(kind)
            assert (caught.value.problem.status, caught.value.problem.code) == (
                422, "not_testable",
            )  # fmt: skip
        with pytest.raises(Refused) as caught:
            await s.client.test_credential("nobody")
        assert caught.value.problem.code == "not_found"


def test_a_playbook_names_what_its_tasks_use_wherever_that_is_written() -> None:
    body = """keychain:
  - {name: k, kind: bearer, credential: of_the_server}
workload: {auth: not_this}
workbook:
  - {name: shared, tool: {kind: postgres, auth: in_workbook, command: select 1}}
workflow:
  - step: start
    tool:
      - {name: a, kind: postgres, auth: plain, command: select 1}
      - {name: b, kind: http, url: "http://x", auth: {type: bearer, credential: in_map}}
      - {name: c, kind: duckdb, command: select 1, auth: {x: {type: s3, credential: in_named}}}
      - name: d
        kind: transfer
        source: {kind: postgres, auth: of_source, query: select 1}
        target: {kind: s3, auth: of_target, uri: "s3://b/k"}
      - {name: e, kind: ducklake, command: select 1, catalog: of_lake, data_path: "s3://b/p"}
      - {name: g, kind: python, script: {source: {type: s3, bucket: b, auth: of_script}}}
      - {name: h, kind: noop, output: {store: {kind: s3, bucket: b, credential: of_store}}}
      - {name: i, kind: http, url: "http://x", auth: "{{ workload.which }}"}
    next: {arcs: [{step: last}]}
  - {step: last, tool: {kind: secrets, provider: wallet, name: of_wallet}}
"""
    model = parse(HEAD + body).model
    assert isinstance(model, Playbook), parse(HEAD + body).errors
    named = named_in(model)
    assert named.aliases >= {
        "plain", "in_map", "in_named", "of_source", "of_target", "of_lake", "of_wallet",
        "of_script", "of_store", "in_workbook",
    }  # fmt: skip
    assert not named.aliases & {"of_the_server", "not_this"}
    assert named.is_templated
    assert list(named.keychain) == ["k"]
