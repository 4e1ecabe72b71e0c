"""What every secret manager does; a provider is the fixture `bench`."""

from __future__ import annotations

import json
import secrets
import traceback

import pytest

from noetl.clock import SystemClock
from noetl.secrets.providers.choose import manager_of
from noetl.secrets.source import SourceMissing, SourceRefused, SourceUnavailable
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.fakes.azure import Azure
from tests.fakes.cluster import TOKEN as CLUSTER_TOKEN
from tests.fakes.cluster import Cluster
from tests.fakes.google import Google
from tests.fakes.vault import TOKEN as VAULT_TOKEN
from tests.fakes.vault import Vault

VALUE = "canary-managed-7734"
WORDS = "pässwörd"


class Bench:
    """A provider: its credential, and how a secret gets there."""

    kind = ""
    has_versions = True

    def __init__(self, fetch, web):
        self.fetch, self.web = fetch, web

    def manager(self, **fields):
        told = {**self.fields, **fields}
        region = "us-east-1" if self.kind == "aws" else ""
        return manager_of(self.kind, told, self.fetch, clock=SystemClock(), region=region)


class OfAws(Bench):
    """AWS Secrets Manager, as moto serves it."""

    kind = "aws"
    old = "AWSPREVIOUS"

    def __init__(self, fetch, web, monkeypatch):
        super().__init__(fetch, web)
        import boto3  # noqa: PLC0415 - comes with moto, slow to load

        for name in ("AWS_PROFILE", "AWS_CA_BUNDLE"):
            monkeypatch.delenv(name, raising=False)
        self.client = boto3.client(
            "secretsmanager",
            endpoint_url=web.url,
            region_name="us-east-1",
            aws_access_key_id=self.fields["access_key_id"],
            aws_secret_access_key=self.fields["secret_access_key"],
        )

    @property
    def fields(self):
        return self.web.fields

    def put(self, name, *values):
        self.client.create_secret(Name=name, SecretString=values[0])
        for value in values[1:]:
            self.client.put_secret_value(SecretId=name, SecretString=value)
        return name


class OfGoogle(Bench):
    """Google Secret Manager."""

    kind = "gcp"
    old = "1"

    @property
    def fields(self):
        return {"service_account": self.web.account, "endpoint": f"{self.web.url}/v1"}

    def put(self, name, *values):
        self.web.secrets[f"projects/acme-demo/secrets/{name}"] = [one.encode() for one in values]
        return name


class OfAzure(Bench):
    """Azure Key Vault."""

    kind = "azure"
    old = "v1"

    @property
    def fields(self):
        return self.web.fields

    def put(self, name, *values):
        self.web.kept[name] = list(values)
        return name


class OfVault(Bench):
    """Vault's key-value engine."""

    kind = "vault"
    old = "1"

    @property
    def fields(self):
        return {"url": self.web.url, "token": VAULT_TOKEN}

    def put(self, name, *values):
        self.web.kept[f"secret/app/{name}"] = [{"password": one} for one in values]
        return f"app/{name}#password"


class OfCluster(Bench):
    """Secrets of Kubernetes."""

    kind = "k8s"
    has_versions = False

    @property
    def fields(self):
        return {"url": self.web.url, "token": CLUSTER_TOKEN, "namespace": "jobs"}

    def put(self, name, *values):
        self.web.kept["jobs", name] = {"password": values[-1].encode()}
        return f"{name}#password"


BENCHES = {"gcp": OfGoogle, "azure": OfAzure, "vault": OfVault, "k8s": OfCluster}
FAKES = {"gcp": Google, "azure": Azure, "vault": Vault, "k8s": Cluster}


@pytest.fixture(scope="module")
def webs():
    made = {kind: fake() for kind, fake in FAKES.items()}
    yield made
    for web in made.values():
        web.stop()


@pytest.fixture
async def fetch():
    fetcher = Fetcher(Guard(egress=Egress(mode="open")))
    yield fetcher
    await fetcher.close()


@pytest.fixture(params=["aws", *BENCHES])
def bench(request, fetch, monkeypatch):
    if request.param == "aws":
        return OfAws(fetch, request.getfixturevalue("s3_server"), monkeypatch)
    return faked(request, fetch)


@pytest.fixture(params=list(BENCHES))
def fake(request, fetch):
    return faked(request, fetch)


def faked(request, fetch):
    web = request.getfixturevalue("webs")[request.param]
    web.raw = None
    return BENCHES[request.param](fetch, web)


@pytest.fixture
def name():
    return f"s-{secrets.token_hex(6)}"


@pytest.mark.parametrize("value", [VALUE, WORDS, "a\nb", json.dumps({"a": 1})])
async def test_a_secret_is_read(bench, name, value):
    assert await bench.manager().read(bench.put(name, value), None) == value


async def test_the_latest_version_is_read_and_an_older_one_when_asked_for(bench, name):
    written = bench.put(name, "first", VALUE)
    assert await bench.manager().read(written, None) == VALUE
    if bench.has_versions:
        assert await bench.manager().read(written, bench.old) == "first"
    else:
        with pytest.raises(SourceMissing):
            await bench.manager().read(written, "1")


async def test_a_secret_that_is_not_there(bench, name):
    written = bench.put(name, VALUE).replace(name, f"{name}x")
    with pytest.raises(SourceMissing) as caught:
        await bench.manager().read(written, None)
    assert VALUE not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("written", ["../x", "a/../b", "a b", "ä", "a?b=c", "", "x\r\ny"])
async def test_a_name_that_could_lead_elsewhere_is_not_asked_for(fake, written):
    before = len(fake.web.asked)
    with pytest.raises((SourceRefused, SourceMissing)):
        await fake.manager().read(written, None)
    reached = [one.path for one in fake.web.asked[before:] if "token" not in one.path]
    assert reached == []


async def test_a_wrong_identity_is_refused_without_its_words(fake, name):
    bad = {
        "gcp": {"service_account": {**fake.fields.get("service_account", {}), "client_email": "x"}},
        "azure": {"client_secret": "canary-wrong"},
    }.get(fake.kind, {"token": "canary-wrong"})
    with pytest.raises(SourceRefused) as caught:
        await fake.manager(**bad).read(fake.put(name, VALUE), None)
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.hint
    assert "canary" not in shown
    assert "answered 4" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, SourceUnavailable), (503, SourceUnavailable), (429, SourceUnavailable),
     (400, SourceRefused), (302, SourceRefused)],
)  # fmt: skip
async def test_a_provider_that_fails(fake, name, status, error):
    manager, written = fake.manager(), fake.put(name, VALUE)
    await manager.read(written, None)  # its token is known from now on
    fake.web.raw = (status, f'{{"error": "{VALUE} in a sentence"}}'.encode())
    with pytest.raises(error) as caught:
        await manager.read(written, None)
    assert VALUE not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"{}", b'{"data": 3, "payload": []}'])
async def test_an_answer_that_is_none(fake, name, body):
    manager, written = fake.manager(), fake.put(name, VALUE)
    await manager.read(written, None)
    fake.web.raw = (200, body)
    with pytest.raises((SourceRefused, SourceMissing)):
        await manager.read(written, None)


async def test_a_provider_that_nobody_runs(bench, name):
    where = {"aws": "endpoint", "gcp": "endpoint", "azure": "vault_url"}.get(bench.kind, "url")
    with pytest.raises(SourceUnavailable):
        await bench.manager(**{where: "http://127.0.0.1:1"}).read(bench.put(name, VALUE), None)


async def test_a_provider_at_an_inner_address_is_not_reached(bench, name):
    written = bench.put(name, VALUE)
    guarded = Fetcher(Guard(egress=Egress()))
    bench.fetch = guarded
    with pytest.raises(SourceRefused) as caught:
        await bench.manager().read(written, None)
    assert "NOETL_HTTP_ALLOW" in caught.value.hint
    await guarded.close()


@pytest.mark.parametrize("kind", ["aws", *BENCHES])
async def test_a_credential_without_fields_is_told_which_one_it_lacks(fetch, kind):
    with pytest.raises(SourceRefused, match=r"needs the field|no service account"):
        await manager_of(kind, {}, fetch, clock=SystemClock()).read("projects/p/secrets/s", None)


def test_a_provider_that_nobody_knows(fetch):
    with pytest.raises(SourceRefused, match="no secret manager"):
        manager_of("onepassword", {}, fetch, clock=SystemClock())


# ---------------------------------------------------------------------------- fields


async def test_a_field_of_a_secret(bench, name):
    written = bench.put(name, json.dumps({"user": "ada", "port": 5432, "more": {"a": 1}}))
    if bench.kind in {"gcp", "azure"}:
        return
    manager = bench.manager()
    if bench.kind == "aws":
        assert await manager.read(f"{written}#user", None) == "ada"
        assert await manager.read(f"{written}#port", None) == "5432"
        assert json.loads(await manager.read(f"{written}#more", None)) == {"a": 1}
    else:
        whole = await manager.read(written.partition("#")[0], None)
        assert list(json.loads(whole)) == ["password"]
    with pytest.raises(SourceMissing, match="no field"):
        await manager.read(f"{written.partition('#')[0]}#absent", None)


async def test_a_secret_of_google_is_named_in_full_as_well(fetch, webs, name):
    webs["gcp"].raw = None
    bench = OfGoogle(fetch, webs["gcp"])
    bench.put(name, "first", VALUE)
    full = f"projects/acme-demo/secrets/{name}"
    assert await bench.manager().read(full, None) == VALUE
    assert await bench.manager().read(f"{full}/versions/latest", None) == VALUE
    assert await bench.manager().read(f"{full}/versions/1", None) == "first"


async def test_a_secret_of_another_namespace_of_kubernetes(fetch, webs, name):
    webs["k8s"].raw = None
    webs["k8s"].kept["ops", name] = {"key": VALUE.encode(), "raw": b"\xff"}
    manager = OfCluster(fetch, webs["k8s"]).manager()
    assert await manager.read(f"ops/{name}#key", None) == VALUE
    with pytest.raises(SourceRefused, match="UTF-8"):
        await manager.read(f"ops/{name}#raw", None)


async def test_a_deleted_version_of_vault_is_missing(fetch, webs, name):
    webs["vault"].raw = None
    webs["vault"].kept[f"secret/{name}"] = [{"a": VALUE}, None]
    manager = OfVault(fetch, webs["vault"]).manager()
    assert await manager.read(f"{name}#a", "1") == VALUE
    for version in (None, "9"):
        with pytest.raises(SourceMissing):
            await manager.read(f"{name}#a", version)
