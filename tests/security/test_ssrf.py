"""No address that leads inside is reached: a corpus of them, through the whole tool.

A canary listens on 127.0.0.1; it must never see a connection, neither by an address that an author
wrote nor by a redirect. The control shows that the same canary is reached once the guard is open.
"""

from __future__ import annotations

import pytest

from noetl.tools.http.egress import Egress, resolve
from noetl.tools.http.tool import HttpTool
from tests.servers.http_stage import FakeClock, fixed, reply, routes, stage

LEAST = 80
NAMES = {
    "rebind.example": ["127.0.0.1"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "six.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "zero.example": ["0.0.0.0"],  # noqa: S104 - an address to be refused
    "cloud.example": ["169.254.169.254"],
    "private.example": ["10.1.2.3"],
}

# Spellings of this machine; each stands for a host in `http://HOST:PORT/`.
HOSTS = (
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "localhost", "LOCALHOST", "localhost.",
    "2130706433", "2130706434", "0x7f000001", "0X7F000001", "017700000001", "127.1", "127.0.1",
    "0177.0.0.1", "0x7f.0.0.1", "0x7f.0x0.0x0.0x1", "0x7f.1", "127.0.0.1.", "2130706433.", "0",
    "0.0.0.0",  # noqa: S104 - an address to be refused
    "0x0", "00", "①②⑦.⓪.⓪.①", "127。0。0。1", "127｡0｡0｡1", "\uff11\uff12\uff17.0.0.1",
    "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "127.0.0.1%2f.example.com",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[::1%25lo]", "[fe80::1]",
    "[fc00::1]", "[fd00::1]", "[ff02::1]", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1",
    "169.254.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
    *NAMES,
)  # fmt: skip
# Whole addresses; `{port}` is that of the canary.
URLS = (
    "http://user:pw@127.0.0.1:{port}/", "http://example.com@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/", "http://example.com\\@127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http:///127.0.0.1:{port}/",
    "file://127.0.0.1:{port}/etc/passwd", "file:///etc/passwd", "gopher://127.0.0.1:{port}/_x",
    "ftp://127.0.0.1:{port}/", "dict://127.0.0.1:{port}/", "ldap://127.0.0.1:{port}/",
    "unix:///tmp/{port}.sock", "data:text/plain,x", "jar:http://127.0.0.1:{port}/!/",
    "http://127.0.0.1:{port}#@example.com/", "http://127.0.0.1:{port}?@example.com/",
    "\thttp://127.0.0.1:{port}/", "HTTP://127.0.0.1:{port}/", "https://127.0.0.1:{port}/",
    "http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/", "http://[::ffff:169.254.169.254]/", "http://[fd00:ec2::254]/",
    "http://metadata.google.internal/computeMetadata/v1/", "http://METADATA.google.internal./",
    "http://100.100.100.200/latest/meta-data/", "http://[64:ff9b::a9fe:a9fe]/",
)  # fmt: skip
CASES = (*(f"http://{host}:{{port}}/" for host in HOSTS), *URLS)


async def lying(host, port):
    """A resolver whose names lead inside."""
    return NAMES[host] if host in NAMES else await resolve(host, port)


def test_the_corpus_is_large_enough():
    assert len(set(CASES)) == len(CASES) >= LEAST


@pytest.mark.parametrize("case", CASES)
async def test_the_canary_is_never_reached(case):
    async with stage(fixed({}), egress=Egress(), resolver=lying) as canary:
        port = canary.base.rsplit(":", 1)[1]
        outcome = await canary.http("", url=case.format(port=port))
    assert outcome.error["kind"] in {"egress", "config"}, outcome
    assert canary.server.connections == 0


@pytest.mark.parametrize("case", CASES)
async def test_no_redirect_leads_to_the_canary(case):
    async with stage(fixed({"caught": True})) as canary:
        url = case.format(port=canary.base.rsplit(":", 1)[1]).strip()
        move = {"/a": (302, [("Location", url.encode().decode("latin-1"))], b"")}
        async with stage(routes(move)) as door:
            door.tool = HttpTool(Egress(always=(door.base,)), FakeClock(), lying)
            outcome = await door.http("/a")
            await door.tool.close()
    assert canary.server.connections == 0
    assert outcome.status == "error" or outcome.data["url"].startswith(door.base)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "localhost", "rebind.example"])
async def test_control_the_same_canary_is_reached_when_the_guard_is_open(host):
    async with stage(lambda _: reply({"caught": True}), resolver=lying) as canary:
        port = canary.base.rsplit(":", 1)[1]
        outcome = await canary.http("", url=f"http://{host}:{port}/")
    assert (outcome.data["body"], canary.server.connections) == ({"caught": True}, 1)


async def test_control_a_redirect_reaches_the_same_canary_when_the_guard_is_open():
    async with stage(fixed({"caught": True})) as canary:
        move = {"/a": (302, [("Location", canary.base + "/")], b"")}
        async with stage(routes(move)) as door:
            assert (await door.http("/a")).data["body"] == {"caught": True}
