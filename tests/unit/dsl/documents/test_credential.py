from __future__ import annotations

import jsonschema
import pytest
import yaml

from noetl.dsl.documents.credential import Credential, CredentialSource
from noetl.dsl.documents.credential_types import TYPES
from noetl.dsl.parse import parse
from noetl.dsl.schema import schema
from noetl.dsl.shape import Fields

HEAD = """\
apiVersion: noetl.io/v1
kind: Credential
metadata: {name: shop_db, path: credentials/shop_db}
spec:
"""
DATA = {
    "postgres": "{host: db, port: 5432, user: u, db_password: p, database: d, sslmode: require}",
    "bearer": "{token: t}",
    "api_key": "{header: X-Key, key: k}",
    "basic": "{username: u, password: p}",
    "tls": "{cert: c, key: k, passphrase: p, ca: a}",
    "oauth2": "{client_id: c, client_secret: s, token_url: 'https://a', scopes: [a, b]}",
    "nats": "{nats_url: 'nats://a', user: u, password: p}",
    "kafka": "{brokers: 'a:9092', sasl_mechanism: PLAIN, sasl_username: u, ssl: true}",
    "pubsub": "{endpoint: 'http://a', access_token: t, service_account: {type: service_account}}",
    "snowflake": "{sf_account: a, sf_user: u, private_key: k, warehouse: w, role: r}",
    "aws": "{access_key_id: a, secret_access_key: s, region: r}",
    "s3": "{aws_access_key_id: a, secret_key: s, endpoint: 'http://a'}",
    "gcp": "{service_account: '{}'}",
    "gcs": "{}",
    "azure": "{tenant: t, client_id: c, client_secret: s, vault_url: 'https://a'}",
    "vault": "{address: 'https://a', token: t, namespace: n, mount: m}",
    "kubernetes": "{server: 'https://a', token: t, namespace: n, ca: c}",
    "mysql": "{host: db, port: 3306, user: u, password: p, database: d}",
    "mcp": "{url: 'https://a', token: t, headers: {x-a: b}}",
    "secret": "{value: v}",
}


def found(text: str) -> list[tuple[str, str, str]]:
    return [
        (item.code, f"{item.span.line}:{item.span.column}", item.pointer)
        for item in parse(HEAD + text).errors
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_reads_with_its_own_fields(kind):
    text = HEAD + f"  type: {kind}\n  data: {DATA[kind]}\n"
    parsed = parse(text)
    assert parsed.diagnostics == ()
    assert isinstance(parsed.model, Credential)
    assert parsed.model.spec.data == yaml.safe_load(DATA[kind])
    jsonschema.Draft202012Validator(schema("Credential")).validate(yaml.safe_load(text))


@pytest.mark.parametrize("kind", TYPES)
def test_a_field_of_no_type_is_refused_by_parser_and_schema(kind):
    text = f"  type: {kind}\n  data: {{zzz: 1}}\n"
    assert ("DSL030", "6:10", "/spec/data/zzz") in found(text)
    validator = jsonschema.Draft202012Validator(schema("Credential"))
    assert not validator.is_valid(yaml.safe_load(HEAD + text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  type: postgrez\n  data: {}\n", ("DSL039", "5:9", "/spec/type")),
        ("  type: 7\n  data: {}\n", ("DSL038", "5:9", "/spec/type")),
        ("  type: [a]\n  data: {}\n", ("DSL038", "5:9", "/spec/type")),
        ("  type: bearer\n  data: token\n", ("DSL038", "6:9", "/spec/data")),
        ("  type: bearer\n  data: {}\n", ("DSL037", "6:9", "/spec/data")),
        ("  type: bearer\n  data: {token: 7}\n", ("DSL038", "6:17", "/spec/data/token")),
        ("  type: postgres\n  data: {port: 0}\n", ("DSL039", "6:16", "/spec/data/port")),
        ("  type: postgres\n  data: {user: a, db_user: b}\n",
         ("DSL039", "6:19", "/spec/data/db_user")),
        ("  type: postgres\n", ("DSL039", "5:3", "/spec")),
        ("  type: postgres\n  from: {provider: env}\n", ("DSL037", "6:10", "/spec/from")),
        ("  type: postgres\n  from: {env: A, map: {host: H}}\n", ("DSL037", "6:10", "/spec/from")),
        ("  type: postgres\n  from: {provider: env, map: {hots: H}}\n",
         ("DSL030", "6:31", "/spec/from/map/hots")),
        ("  type: postgres\n  from: {provider: env, map: 7}\n",
         ("DSL038", "6:30", "/spec/from/map")),
        ("  type: postgres\n  from: {}\n", ("DSL039", "6:9", "/spec/from")),
        ("  type: postgres\n  from: {env: A, file: b}\n", ("DSL039", "6:18", "/spec/from/file")),
    ],
)  # fmt: skip
def test_a_credential_that_is_not_right_is_refused(text, expected):
    assert found(text) == [expected]


def test_a_spec_that_is_no_map_is_one_fault():
    parsed = parse(HEAD.rstrip() + " 7\n")
    assert [(item.code, item.pointer) for item in parsed.errors] == [("DSL038", "/spec")]


def test_data_is_never_a_template():
    parsed = parse(HEAD + '  type: secret\n  data: {value: "{{ not a template"}\n')
    assert (parsed.errors, parsed.sites) == ((), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{env: SHOP_DB}", CredentialSource(env="SHOP_DB")),
        (
            "{provider: env, map: {host: H}, auth: keeper, region: eu}",
            CredentialSource(provider="env", map={"host": "H"}, auth="keeper", region="eu"),
        ),
        ("{vault: {path: kv/shop}}", CredentialSource(vault={"path": "kv/shop"})),
    ],
)
def test_data_may_come_from_elsewhere(text, expected):
    model = parse(HEAD + f"  type: postgres\n  from: {text}\n").model
    assert isinstance(model, Credential)
    assert model.spec.from_ == expected


def test_no_value_of_a_secret_is_printed():
    model = parse(HEAD + "  type: basic\n  data: {username: u, password: hunter2}\n").model
    assert isinstance(model, Credential)
    assert repr(model.spec) == "CredentialSpec(type='basic', fields=['password', 'username'])"
    assert "hunter2" not in repr(model)


def test_no_value_of_a_secret_is_in_a_message():
    parsed = parse(HEAD + "  type: basic\n  data: {username: [hunter2], pass_word: hunter2}\n")
    assert parsed.errors
    assert "hunter2" not in str([item.as_json() for item in parsed.diagnostics])


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("{provider: env, map: {host: H}}", True),
        ("{provider: env, map: {hots: H}}", False),
        ("{provider: env}", False),
        ("{env: A}", True),
    ],
)
def test_the_schema_knows_where_data_may_come_from(text, valid):
    validator = jsonschema.Draft202012Validator(schema("Credential"))
    document = yaml.safe_load(HEAD + f"  type: postgres\n  from: {text}\n")
    assert validator.is_valid(document) == valid


@pytest.mark.parametrize("cls", [Credential, CredentialSource, *TYPES.values()])
def test_every_key_has_words_for_the_reference(cls):
    assert all(item.shape.words() for item in Fields.of(cls).keys.values())
