"""What proves a request: tokens of Google, certificates on both sides, and what does not."""

from __future__ import annotations

import ssl
import tempfile
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from noetl.clock import SystemClock
from noetl.secrets.fetch import Answer
from noetl.tools.http import transport
from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool
from tests.servers.http_stage import FakeClock, fixed, reply, routes, stage

PHRASE = "canary-phrase-5181"


class Authority:
    """Signs certificates."""

    def __init__(self, name):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.cert = self._signed(self.name, self.key.public_key(), is_ca=True)

    @property
    def pem(self):
        return self.cert.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name, phrase=None):
        """A certificate and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert = self._signed(subject, key.public_key())
        hidden = (
            serialization.BestAvailableEncryption(phrase.encode())
            if phrase
            else serialization.NoEncryption()
        )
        form = serialization.PrivateFormat.PKCS8
        made = key.private_bytes(serialization.Encoding.PEM, form, hidden)
        return cert.public_bytes(serialization.Encoding.PEM).decode(), made.decode()

    def _signed(self, subject, public, *, is_ca=False):
        now = SystemClock().now()
        made = (
            x509.CertificateBuilder()
            .subject_name(subject).issuer_name(self.name).public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(
                [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("storage.googleapis.com")]
            ), critical=False)
        )  # fmt: skip
        if not is_ca:
            usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            made = made.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        return made.sign(self.key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority():
    return Authority("ours")


@pytest.fixture(scope="module")
def server_tls(authority, tmp_path_factory):
    """A server that wants a certificate of its clients."""
    folder = tmp_path_factory.mktemp("mtls")
    cert, key = authority.issue("server")
    (folder / "cert.pem").write_text(cert)
    (folder / "key.pem").write_text(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def giving(**known):
    async def secrets(alias):
        return known[alias]

    return secrets


def tls_credential(authority, phrase=None, **more):
    cert, key = authority.issue("client", phrase)
    data = {"cert": cert, "key": key, "ca": authority.pem, **more}
    return {"type": "tls", "data": data}


# ---------------------------------------------------------------------------- certificates


async def test_a_certificate_of_ours_opens_the_door(authority, server_tls):
    secrets = giving(
        mine=tls_credential(authority),
        hidden=tls_credential(authority, PHRASE, passphrase=PHRASE),
        roots={"type": "tls", "data": {"ca": authority.pem}},
        strange=tls_credential(Authority("theirs"), ca=authority.pem),
    )
    async with stage(fixed({"in": True}), tls=server_tls) as at:
        for auth in ("mine", "hidden", {"credential": "mine"}):
            assert (await at.http(auth=auth, secrets=secrets)).data["body"] == {"in": True}
        token = {"credential": "mine", "token": "canary-token-5182"}
        await at.http(auth=token, secrets=secrets)
        assert at.seen[-1].headers["authorization"] == "Bearer canary-token-5182"
        seen = len(at.seen)
        outside = [await at.http(auth=auth, secrets=secrets) for auth in ("roots", "strange")]
        unknown = await at.http()
    assert [one.error["kind"] for one in outside] == ["connection"] * 2
    assert (unknown.error["code"], unknown.error["retryable"]) == ("TLS_ERROR", False)
    assert len(at.seen) == seen


async def test_a_certificate_stays_with_its_origin(authority, server_tls):
    secrets = giving(mine=tls_credential(authority))
    async with stage(fixed({"in": True}), tls=server_tls) as other:
        move = {"/a": (307, [("Location", other.base + "/b")], b"")}
        async with stage(routes(move), tls=server_tls) as at:
            outcome = await at.http("/a", auth="mine", secrets=secrets)
    assert outcome.error["code"] == "TLS_ERROR"
    assert (len(at.seen), other.seen) == (1, [])


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        ({"cert": "c"}, "auth", "/auth/key"),
        ({"key": "canary-key-5183"}, "auth", "/auth/cert"),
        ({}, "auth", "/auth/cert"),
        ({"cert": "c", "key": "canary-key-5183"}, "config", "PEM"),
        ({"ca": "no authority"}, "config", "PEM"),
    ],
)
async def test_certificates_that_are_none(data, kind, said):
    async with stage(fixed({})) as at:
        secrets = giving(bad={"type": "tls", "data": data})
        url = at.base.replace("http", "https")
        outcome = await at.http("", url=url, auth="bad", secrets=secrets)
    assert outcome.error["kind"] == kind
    assert said in outcome.error["message"]
    assert "canary" not in str(outcome)
    assert at.seen == []


async def test_a_wrong_passphrase_asks_nobody(authority):
    secrets = giving(hidden=tls_credential(authority, PHRASE, passphrase=PHRASE[::-1]))
    async with stage(fixed({})) as at:
        url = at.base.replace("http", "https")
        outcome = await at.http("", url=url, auth="hidden", secrets=secrets)
    assert outcome.error["kind"] == "config"
    assert PHRASE[::-1] not in str(outcome)


async def test_few_pools_are_kept(authority, server_tls, monkeypatch):
    monkeypatch.setattr(transport, "MOST_POOLS", 2)
    many = {f"c{n}": tls_credential(authority) for n in range(4)}
    async with stage(fixed({}), tls=server_tls) as at:
        for alias in many:
            assert (await at.http(auth=alias, secrets=giving(**many))).status == "ok"
        assert len(at.tool._door._pools) == 2  # noqa: SLF001 - nothing else shows it
        assert (await at.http(auth="c0", secrets=giving(**many))).status == "ok"


# ---------------------------------------------------------------------------- Google


def account(token_uri):
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return {"client_email": "robot@example.com", "private_key": pem, "token_uri": token_uri}


async def test_a_service_account_becomes_a_token_which_is_kept():
    def mint(_seen):
        return reply({"access_token": "canary-google-5185", "expires_in": 3600})

    async with stage(mint) as google, stage(fixed({})) as at:
        data = {"service_account": account(google.base + "/token")}
        secrets = giving(robot={"type": "gcp", "data": data})
        for auth in ("robot", "robot", {"credential": "robot", "scopes": ["https://a/b", "c"]}):
            outcome = await at.http(auth=auth, secrets=secrets)
            assert outcome.status == "ok", outcome.error
    assert {seen.headers["authorization"] for seen in at.seen} == {"Bearer canary-google-5185"}
    assert len(google.seen) == 2  # one for each scope
    assert "canary-google-5185" not in at.redactor.redact("Bearer canary-google-5185")


async def test_an_account_that_google_refuses_is_no_proof():
    async with stage(fixed({"error": "invalid_grant"}, 400)) as google, stage(fixed({})) as at:
        data = {"service_account": account(google.base + "/token")}
        secrets = giving(robot={"type": "gcs", "data": data}, odd={"type": "gcp", "data": {
            "service_account": "no JSON"}})  # fmt: skip
        errors = [(await at.http(auth=one, secrets=secrets)).error for one in ("robot", "odd")]
    assert [(one["kind"], one["retryable"]) for one in errors] == [("auth", False)] * 2
    assert at.seen == []


async def test_the_machine_shows_itself_to_google_alone(authority):
    asked = []

    async def machine(ask):
        asked.append(ask.url)
        body = b'{"access_token": "canary-machine-5186", "expires_in": 3600}'
        return Answer(status=200, body=body)

    async def local(_host, _port):
        return ["127.0.0.1"]

    open_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with stage(fixed({"ok": 1}), tls=_without_clients(authority, open_tls)) as at:
        port = at.base.rsplit(":", 1)[1]
        at.tool = HttpTool(Egress(mode="open"), FakeClock(), local, machine=machine)
        auth = {"type": "gcp_adc", "scopes": "https://www.googleapis.com/auth/devstorage.read_only"}
        url = f"https://storage.googleapis.com:{port}/"
        outcome = await at.http("", url=url, auth=auth, verify=False)
        elsewhere = [
            await at.http("", url=f"{scheme}://{host}:{port}/", auth={"type": "gcp_adc"})
            for scheme, host in (
                ("http", "storage.googleapis.com"), ("https", "googleapis.com.evil.example"),
                ("https", "127.0.0.1"),
            )
        ]  # fmt: skip
        await at.tool.close()
    assert outcome.data["body"] == {"ok": 1}
    assert at.seen[0].headers["authorization"] == "Bearer canary-machine-5186"
    assert {one.error["code"] for one in elsewhere} == {"invalid_config"}
    assert (len(at.seen), len(asked)) == (1, 1)
    assert "devstorage.read_only" in asked[0]


def _without_clients(authority, context):
    with tempfile.TemporaryDirectory() as folder:
        cert, key = authority.issue("google")
        (Path(folder) / "c").write_text(cert)
        (Path(folder) / "k").write_text(key)
        context.load_cert_chain(Path(folder) / "c", Path(folder) / "k")
    return context


# ---------------------------------------------------------------------------- other types


async def test_a_credential_of_another_kind_proves_nothing():
    secrets = giving(db={"type": "postgres", "data": {"password": "canary-5187"}})
    async with stage(fixed({})) as at:
        errors = [(await at.http(auth=one, secrets=secrets)).error
                  for one in ("db", {"credential": "db", "type": "bearer"})]  # fmt: skip
    assert [(one["kind"], one["code"]) for one in errors] == [("auth", "credential_type")] * 2
    assert at.seen == []


async def test_the_headers_of_an_mcp_credential_are_sent():
    data = {"url": "http://x", "token": "canary-5188", "headers": {"X-Team": "canary-5189"}}
    async with stage(fixed({})) as at:
        await at.http(auth="m", secrets=giving(m={"type": "mcp", "data": data}))
    headers = at.seen[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer canary-5188", "canary-5189")
