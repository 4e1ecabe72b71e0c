import pytest

from noetl.dsl.documents.credential_types import secrets_in, texts_in
from noetl.dsl.handles import handle_of
from noetl.dsl.parse import parse
from noetl.dsl.secret_inputs import has_mask, is_masked, named, path_of, secret_paths, with_secrets
from noetl.dsl.secret_inputs import without as taken_out

TEXT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: a, path: a}
inputs:
  token: {type: string, secret: true}
  db: {type: object, properties: {password: {type: string, secret: true}, host: {type: string}}}
  keys: {type: array, items: {type: object, properties: {k: {type: string, secret: true}}}}
workload:
  pin: ""  # ui:secret
  box:
    open: 1
    shut: x  # ui:secret
workflow: [{step: s, tool: {kind: noop}}]
"""
PATHS = (("token",), ("db", "password"), ("keys",), ("pin",), ("box", "shut"))


def test_inputs_and_comments_say_what_is_secret():
    assert secret_paths(parse(TEXT)) == PATHS
    assert secret_paths(parse("kind: Playbook")) == ()


def test_values_are_taken_out_and_put_back():
    whole = {"token": "T", "db": {"password": "P", "host": "h"}, "keys": [{"k": "K"}], "pin": "",
             "box": {"open": 1, "shut": 7}, "more": None}  # fmt: skip
    masked, taken = taken_out(whole, PATHS)

    assert masked == {"token": "***", "db": {"password": "***", "host": "h"}, "keys": "***",
                      "pin": "", "box": {"open": 1, "shut": "***"}, "more": None}  # fmt: skip
    assert taken == {"token": "T", "db/password": "P", "keys": [{"k": "K"}], "box/shut": 7}
    assert whole["db"]["password"] == "P"  # noqa: S105 - it is not changed
    assert with_secrets(masked, taken) == whole
    assert taken_out(masked, PATHS) == (masked, {})


def test_only_a_mask_gives_way():
    assert with_secrets({"a": "own", "b": {}}, {"a": "S", "b/c": "S", "d": "S"}) == {
        "a": "own", "b": {},
    }  # fmt: skip


def test_a_mask_is_seen():
    assert is_masked({"a": {"b": "***"}}, [("a", "b")])
    assert not is_masked({"a": "***"}, [("a", "b"), ("c",)])
    assert has_mask({"a": {"b": "***"}})
    assert not has_mask({"a": "x***"})


@pytest.mark.parametrize("path", [("a",), ("a", "b"), ("a/b", "~"), ("a~1b", "c/")])
def test_a_place_has_one_name(path):
    assert path_of(named(path)) == path


@pytest.mark.parametrize(
    ("name", "handle"),
    [
        ("projects/acme/secrets/mail", "mail"),
        ("projects/acme/secrets/mail/versions/3", "mail"),
        ("MAIL_RELAY", "MAIL_RELAY"),
        ("kv/mail-box.one", "mail_box_one"),
        ("kv/7up", "_7up"),
        ("///", "secret"),
    ],
)
def test_the_handle_of_a_secret_is_the_last_part_of_its_name(name, handle):
    assert handle_of(name, "vault") == handle


@pytest.mark.parametrize("name", ["MAIL_RELAY", "_TOKEN", "TOKEN_", "__", "_7"])
def test_the_handle_of_a_variable_is_its_name(name):
    assert handle_of(name, "env") == name


@pytest.mark.parametrize(
    ("fields", "secrets"),
    [
        ({"host": "h", "db_user": "u", "db_password": "p-1"}, ["p-1"]),
        ({"url": "nats://h:4222", "token": "t-1"}, ["t-1"]),
        ({"url": "nats://u:p%2F1@h"}, ["p%2F1", "p/1", "u:p%2F1"]),
        ({"url": "nats://t-1@h"}, ["t-1", "t-1", "t-1"]),
        ({"service_account": {"client_email": "a@b", "private_key": "k-1"}}, ["k-1"]),
        ({"service_account": '{"client_email": "a@b", "private_key": "k-1"}'}, ["k-1"]),
        ({"headers": {"X-Key": "k-1"}, "ssl": True, "n": None, "pin": 4711}, ["k-1", "4711"]),
        ({"aws_access_key_id": "AKIA1", "secret_key": "k-1", "session_token": "t-1"},
         ["k-1", "t-1"]),
        ({"headers": {"access_key": "k-1"}}, ["k-1"]),
        ({"value": "{no json"}, ["{no json"]),
    ],
)  # fmt: skip
def test_what_of_a_credential_is_secret(fields, secrets):
    assert list(secrets_in(fields)) == secrets


def test_of_an_input_everything_is():
    assert list(texts_in({"user": "kim", "host": ["h", {"port": 1}], "is": True})) == [
        "kim", "h", "1",
    ]  # fmt: skip
