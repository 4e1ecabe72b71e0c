"""Our own requests for secrets keep the rules of those of steps."""

from __future__ import annotations

import ssl
import traceback
from datetime import timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from noetl.clock import SystemClock
from noetl.secrets.fetch import Ask, Unreached
from noetl.tools.base import ToolError
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import METADATA_HOST, MOST_BYTES, Fetcher, OwnMachine
from tests.fakes.web import Web

CANARY = "canary-fetched-8086"


class Echo(Web):
    """Answers with what it was asked."""

    def answer(self, asked):
        return {"headers": asked.headers, "body": asked.body.decode(), "path": asked.path}


@pytest.fixture(scope="module")
def web():
    made = Echo()
    yield made
    made.stop()


@pytest.fixture
async def fetch():
    fetcher = Fetcher(Guard(egress=Egress(mode="open")))
    yield fetcher
    await fetcher.close()


def shown(fault):
    return "".join(traceback.format_exception(fault)) + fault.hint


async def test_a_request_goes_out_as_it_was_written(web, fetch):
    web.raw = None
    ask = Ask(method="POST", url=f"{web.url}/a", headers={"x-key": CANARY}, body=b"b")
    answer = await fetch(ask)
    assert answer.is_ok
    assert answer.headers["content-type"] == "application/json"
    assert web.asked[-1].headers["x-key"] == CANARY
    assert web.asked[-1].headers["host"] == web.url.removeprefix("http://")
    assert web.asked[-1].body == b"b"
    assert CANARY not in f"{ask!r} {answer!r}"


@pytest.mark.parametrize("status", [302, 404, 503])
async def test_any_status_is_an_answer_and_no_redirect_is_followed(web, fetch, status):
    web.raw = (status, b"{}")
    before = len(web.asked)
    assert (await fetch(Ask(method="GET", url=web.url))).status == status
    assert len(web.asked) == before + 1


async def test_an_answer_that_is_too_large_is_not_kept(web, fetch):
    web.raw = (200, b"x" * (MOST_BYTES + 1))
    with pytest.raises(Unreached, match="larger than"):
        await fetch(Ask(method="GET", url=web.url))


async def test_a_guarded_address_is_not_reached(web):
    guarded = Fetcher(Guard(egress=Egress()))
    before = len(web.asked)
    for url in (
        web.url,
        "http://169.254.169.254/",
        "http://metadata.google.internal/",
        "file:///x",
    ):
        with pytest.raises(Unreached) as caught:
            await guarded(Ask(method="GET", url=url))
        assert caught.value.is_refused
    assert len(web.asked) == before
    await guarded.close()


async def test_the_metadata_service_is_not_reached_even_when_all_is_open(fetch):
    for url in ("http://169.254.169.254/", "http://metadata.google.internal/"):
        with pytest.raises(Unreached) as caught:
            await fetch(Ask(method="GET", url=url))
        assert caught.value.is_refused


async def test_nobody_there_may_be_tried_again(fetch):
    with pytest.raises(Unreached) as caught:
        await fetch(Ask(method="GET", url="http://127.0.0.1:1/"))
    assert not caught.value.is_refused


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("no address", {}),
        ("http://127.0.0.1\\@x/", {}),
        ("http://127.0.0.1:1/", {"authorization": f"Bearer {CANARY}\r\nx: y"}),
        ("http://127.0.0.1:1/", {"authorization": f"{CANARY}\n"}),
        ("http://127.0.0.1:1/", {"ä": CANARY}),
        ("http://127.0.0.1:1/", {"x": f"{CANARY}\ud800"}),
    ],
)
async def test_a_request_that_is_none_is_refused_without_its_secrets(fetch, url, headers):
    with pytest.raises(Unreached) as caught:
        await fetch(Ask(method="GET", url=url, headers=headers))
    assert caught.value.is_refused
    assert CANARY not in shown(caught.value)


# ---------------------------------------------------------------------------- the machine itself


def test_the_way_to_the_machine_leads_nowhere_else():
    egress = OwnMachine()
    address = ip_address("169.254.169.254")
    egress.refuse_url("http", userinfo=False, host=METADATA_HOST)
    assert egress.refusal(METADATA_HOST, 80, address) is None
    assert egress.refusal(METADATA_HOST, 8080, address)
    assert egress.refusal(METADATA_HOST, 80, ip_address("127.0.0.1"))
    assert egress.refusal("example.com", 80, address)
    for host in ("example.com", "169.254.169.254", "metadata"):
        with pytest.raises(ToolError, match="refused"):
            egress.refuse_url("http", userinfo=False, host=host)


async def test_another_address_is_not_asked_that_way(web):
    machine = Fetcher.of_machine()
    with pytest.raises(Unreached) as caught:
        await machine(Ask(method="GET", url=web.url))
    assert caught.value.is_refused
    await machine.close()


# ---------------------------------------------------------------------------- an authority


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A server with a certificate that only its own authority vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a private authority")])
    now = SystemClock().now()
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = tmp_path_factory.mktemp("authority") / "both.pem"
    file.write_bytes(cert + plain)
    made = Echo()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    made.wrap(context)
    yield made, cert.decode()
    made.stop()


async def test_a_private_authority_is_trusted_when_it_is_given_and_only_then(private, fetch):
    web, pem = private
    url = web.url.replace("http:", "https:")
    assert (await fetch(Ask(method="GET", url=url, authority=pem))).is_ok
    with pytest.raises(Unreached) as caught:
        await fetch(Ask(method="GET", url=url))
    assert caught.value.is_refused
    with pytest.raises(Unreached, match="no certificate") as caught:
        await fetch(Ask(method="GET", url=url, authority="canary"))
    assert caught.value.is_refused
