"""Every field that a reader of credentials asks for is a field of the type that it reads."""

from __future__ import annotations

import pytest

from noetl.clock import SystemClock
from noetl.dsl.documents.credential import spec_faults
from noetl.dsl.documents.credential_types import TYPES, first_names
from noetl.dsl.shape import Fields
from noetl.secrets.fetch import Answer
from noetl.secrets.providers.choose import TYPE_OF, manager_of
from noetl.secrets.source import SourceError
from noetl.secrets.tokens import aws_sts, azure, oauth2
from noetl.secrets.tokens.google import account_of
from noetl.tools.duckdb.grants import connection_fields, connection_words, object_fields

SPECIAL = {
    "service_account": {"client_email": "a@b", "private_key": "k"}, "duration_seconds": "900",
    "port": 5432, "scopes": ["a"], "grant_type": "password", "region": "eu-1", "tenant_id": "t",
    "auth_style": "basic", "sslmode": "require",
}  # fmt: skip


class Told(dict):
    """Fields, and the names that were asked for."""

    def __init__(self, fields):
        super().__init__(fields)
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)


async def refusing(ask):
    del ask
    return Answer(status=403, headers={}, body=b"")


def manager(provider):
    def read(fields):
        manager_of(provider, fields, refusing, clock=SystemClock())

    return read


async def sts(fields):
    await aws_sts.mint(refusing, SystemClock(), fields)


async def entra(fields):
    await azure.mint(refusing, fields, scope="s")


READERS = [
    *((kind, manager(provider)) for provider, kind in TYPE_OF.items()),
    ("aws", sts),
    ("azure", entra),
    ("gcp", account_of),
    ("oauth2", oauth2.url_of),
    ("oauth2", oauth2.grant_of),
    ("s3", lambda fields: object_fields("s3", fields, "s3://")),
    ("gcs", lambda fields: object_fields("gcs", fields, "gs://")),
    *((kind, read) for kind in ("postgres", "mysql") for read in (connection_fields,
                                                                  connection_words)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "read"), READERS)
@pytest.mark.parametrize("is_full", [True, False])
async def test_every_field_that_a_reader_asks_for_belongs_to_its_type(kind, read, is_full):
    known = Fields.of(TYPES[kind])
    fields = Told({name: SPECIAL.get(name, "x") for name in known.keys} if is_full else {})
    try:
        reading = read(fields)
        if reading is not None and hasattr(reading, "__await__"):
            await reading
    except SourceError as fault:
        assert not is_full or fault.answered == 403, fault  # noqa: PT017 - all else passes
    except Exception as fault:
        if is_full or getattr(fault, "code", "") != "credential_type":
            raise
    assert fields.asked or not is_full
    assert fields.asked - set(known.keys) == set()


@pytest.mark.parametrize("kind", TYPES)
def test_a_document_may_hold_every_field_under_each_of_its_names(kind):
    for name, (_, field) in Fields.of(TYPES[kind]).by_name.items():
        assert first_names(kind, {"type": kind, name: "x"}) == {field.name: "x"}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("vault", {"address": "https://v", "token": "t", "namespace": "n", "mount": "kv"}),
        ("azure", {"tenant_id": "t", "client_id": "c", "client_secret": "s",
                   "vault_url": "https://v", "authority": "https://login"}),
        ("kubernetes", {"server": "https://k", "token": "t", "namespace": "n", "ca_cert": "c"}),
        ("mysql", {"host": "h", "port": 3306, "user": "u", "password": "p", "database": "d"}),
        ("gcs", {"access_key_id": "a", "secret_access_key": "s"}),
        ("gcp", {"service_account": "{}", "impersonate": "a@b", "endpoint": "https://g"}),
        ("aws", {"role_arn": "r", "role_session_name": "n", "external_id": "e",
                 "duration_seconds": 900}),
        ("oauth2", {"client_id": "c", "auth_style": "basic", "resource": "r"}),
    ],
)  # fmt: skip
def test_what_readers_need_can_be_stored(kind, data):
    assert spec_faults({"type": kind, "data": data}) == ()


@pytest.mark.parametrize("name", ["project", "project_id"])
async def test_a_secret_of_google_is_looked_for_in_the_project_of_the_credential(name):
    asked = []

    async def google(ask):
        asked.append(ask.url)
        return Answer(status=403, headers={}, body=b"{}")

    async def machine(ask):
        del ask
        return Answer(status=200, headers={}, body=b'{"access_token": "t", "expires_in": 60}')

    fields = first_names("gcp", {name: "p-1"})
    manager = manager_of("gcp", fields, google, clock=SystemClock(), metadata=machine)
    with pytest.raises(SourceError):
        await manager.read("s")
    assert asked == [
        "https://secretmanager.googleapis.com/v1/projects/p-1/secrets/s/versions/latest:access"
    ]
