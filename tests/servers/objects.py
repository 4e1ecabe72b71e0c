"""The object store of a test process: moto's S3 behind a real socket."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY_ID = "key-id-of-a-test"
SECRET = "s3-secret-of-a-test-4c1f"  # noqa: S105 - of a store that ends with the tests
REGION = "us-east-1"


class S3Server:
    """One server; each test takes a bucket of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def fields(self) -> dict[str, str]:
        """What a credential for it holds."""
        return {
            "access_key_id": KEY_ID,
            "secret_access_key": SECRET,
            "region": REGION,
            "endpoint": self.url,
        }

    def bucket(self) -> str:
        """A new bucket."""
        name = f"b-{random_key()[:20].lower()}"
        request = Request(f"{self.url}/{name}", method="PUT")  # noqa: S310 - our own server
        with urlopen(request, timeout=10):  # noqa: S310 - as above
            return name


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server for all tests of a process."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - slow to load, and few need it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield S3Server(f"http://{host}:{port}")
    server.stop()
