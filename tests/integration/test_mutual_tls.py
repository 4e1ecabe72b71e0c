"""Client certificates: a process that is told an authority answers nobody without one of it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from noetl.api.http import NoAnswer
from noetl.api.sockets import SocketTransport
from tests.integration.test_gateway_process import gateway_process
from tests.integration.test_http_proof import Authority
from tests.integration.test_server_process import server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LATE_S = 45


class Certificates:
    """Files of an authority, of a process that it vouches for, and of callers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ours, self._other = Authority("ours"), Authority("other")
        self._authority = self._file("authority.pem", self._ours.pem)
        cert, key = self._issued(self._ours, "process")
        self.settings = {
            "NOETL_TLS_CERT": cert,
            "NOETL_TLS_KEY": key,
            "NOETL_TLS_CLIENT_CA": self._authority,
        }

    def _file(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text)
        return str(path)

    def _issued(self, authority: Authority, name: str) -> tuple[str, str]:
        cert, key = authority.issue(name)
        return self._file(f"{name}.pem", cert), self._file(f"{name}.key", key)

    def caller(self, authority: Authority | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._authority)
        if authority is not None:
            context.load_cert_chain(*self._issued(authority, "caller"))
        return context

    async def answers(self, url: str) -> list[int | None]:
        """What one of ours, one without a certificate and one of another authority are told."""
        told: list[int | None] = []
        for authority in (self._ours, None, self._other):
            way = SocketTransport(url.replace("http:", "https:"), tls=self.caller(authority))
            try:
                told.append((await way.request("GET", "/health")).status)
            except NoAnswer:
                told.append(None)
            finally:
                await way.close()
        return told


@asynccontextmanager
async def a_server(postgres_url: str, settings: dict[str, str]) -> AsyncIterator[str]:
    async with server(postgres_url, **settings) as running:
        await running.until("the server listens")
        yield running.url


@asynccontextmanager
async def a_gateway(folder: Path, settings: dict[str, str]) -> AsyncIterator[str]:
    async with gateway_process(folder, **settings) as running, asyncio.timeout(LATE_S):
        async for line in running.process.stderr:
            if b"listens" in line:
                break
        yield running.url


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def test_a_server_answers_only_those_with_a_certificate(
    postgres_url: str, certificates: Certificates
) -> None:
    async with a_server(postgres_url, certificates.settings) as url:
        assert await certificates.answers(url) == [200, None, None]


async def test_a_gateway_answers_only_those_with_a_certificate(
    tmp_path: Path, clean_nats_url: str, certificates: Certificates
) -> None:
    settings = certificates.settings | {
        "NOETL_NATS_URL": clean_nats_url,
        "GATEWAY_PUBLIC_URL": "https://127.0.0.1",
    }
    async with a_gateway(tmp_path, settings) as url:
        assert await certificates.answers(url) == [200, None, None]


async def test_without_an_authority_a_server_asks_nobody_for_a_certificate(
    postgres_url: str, certificates: Certificates
) -> None:
    settings = certificates.settings | {"NOETL_TLS_CLIENT_CA": ""}
    async with a_server(postgres_url, settings) as url:
        assert await certificates.answers(url) == [200, 200, 200]
