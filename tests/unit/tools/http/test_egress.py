"""Which addresses a request may reach: every notation, name and policy, without a network."""

from __future__ import annotations

import pytest

from noetl.tools.base import ToolError
from noetl.tools.http.egress import Egress, Guard, denied, host_of, literal

PUBLIC = "93.184.216.34"


async def reached(host, *answers, port=80, **policy):
    """The addresses that a host gives under a policy, with these answers of the resolver."""

    async def resolve(_host, _port):
        return list(answers)

    return await Guard(egress=Egress(**policy), resolve=resolve).addresses(host, port)


async def refused(host, *answers, port=80, **policy):
    """The reason of the refusal."""
    with pytest.raises(ToolError) as caught:
        await reached(host, *answers, port=port, **policy)
    error = caught.value.as_map()
    assert (error["kind"], error["code"], error["retryable"]) == ("egress", "egress_denied", False)
    return error["details"]["reason"]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("127.1", "loopback"),
        ("127.0.1", "loopback"),
        ("2130706433", "loopback"),
        ("017700000001", "loopback"),
        ("0177.0.0.1", "loopback"),
        ("0177.0.0.01", "loopback"),
        ("0x7f000001", "loopback"),
        ("0x7F.0.0.1", "loopback"),
        ("0x7f.1", "loopback"),
        ("127.0.0.1.", "loopback"),
        ("2130706433.", "loopback"),
        ("127。0。0。1", "loopback"),
        ("①②⑦.⓪.⓪.①", "loopback"),
        ("\uff11\uff12\uff17.\uff10.\uff10.\uff11", "loopback"),
        ("0", "unspecified"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - an address to be refused
        ("0.1.2.3", "unspecified"),
        ("0x0", "unspecified"),
        ("10.0.0.1", "private"),
        ("167772161", "private"),
        ("012.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("3232235777", "private"),
        ("0xc0a80101", "private"),
        ("100.64.0.1", "shared"),
        ("100.127.255.254", "shared"),
        ("169.254.1.1", "link_local"),
        ("169.254.169.254", "metadata"),
        ("2852039166", "metadata"),
        ("0xa9fea9fe", "metadata"),
        ("0251.0376.0251.0376", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("192.0.0.1", "reserved"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("198.51.100.7", "reserved"),
        ("203.0.113.9", "reserved"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("[::1]", "loopback"),
        ("0:0:0:0:0:0:0:1", "loopback"),
        ("::ffff:127.0.0.1", "mapped"),
        ("::ffff:10.0.0.1", "mapped"),
        ("::ffff:7f00:1", "mapped"),
        ("::ffff:93.184.216.34", "mapped"),
        ("::ffff:169.254.169.254", "metadata"),
        ("::127.0.0.1", "mapped"),
        ("::ffff:0:127.0.0.1", "mapped"),
        ("64:ff9b::7f00:1", "nat64"),
        ("64:ff9b::8.8.8.8", "nat64"),
        ("64:ff9b::169.254.169.254", "metadata"),
        ("64:ff9b:1::1", "nat64"),
        ("2002:7f00:1::", "tunnel"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "tunnel"),
        ("2001:db8::1", "reserved"),
        ("2001:2::1", "reserved"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("fe80::1", "link_local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
        ("2600::5efe:7f00:1", "mapped"),
        ("metadata.google.internal", "metadata"),
        ("METADATA.google.internal.", "metadata"),
        ("metadata", "metadata"),
        ("instance-data", "metadata"),
    ],
)
async def test_an_address_that_is_refused_however_it_is_written(host, reason):
    assert await refused(host, PUBLIC) == reason


@pytest.mark.parametrize(
    "host",
    ["", ".", "a..", "127.0.0.1%2f", "fe80::1%25eth0", "a b", "a\\b", "a@b", "a/b", "a?b", "a#b",
     "1.2.3.4.5", "256.256.256.256", "0x1ffffffff", "127.0.0.0x", "09.1.1.1", "a.1", "1::2::3",
     "a:b", "127.0.0.1\x00", "a\tb", "a<b", "\ud800"],
)  # fmt: skip
async def test_a_host_that_no_resolver_may_guess_about_is_refused(host):
    assert await refused(host, PUBLIC) == "host"


@pytest.mark.parametrize(
    "answers",
    [
        ("127.0.0.1",),
        (PUBLIC, "127.0.0.1"),
        (PUBLIC, "10.0.0.1"),
        ("2606:2800:220:1::1", "::1"),
        ("::ffff:127.0.0.1",),
        ("fe80::1%2",),
        ("169.254.169.254",),
    ],
)
async def test_one_bad_answer_of_the_resolver_refuses_the_name(answers):
    await refused("rebind.example", *answers)


async def test_the_addresses_that_were_judged_are_the_ones_that_are_used():
    answers = iter([[PUBLIC], ["127.0.0.1"]])

    async def turncoat(_host, _port):
        return next(answers)

    guard = Guard(egress=Egress(), resolve=turncoat)
    assert await guard.addresses("rebind.example", 443) == [PUBLIC]
    with pytest.raises(ToolError, match="loopback"):
        await guard.addresses("rebind.example", 443)


@pytest.mark.parametrize("host", ["93.184.216.34", "1572395042", "0x5db8d822", "example.com."])
async def test_a_public_address_passes(host):
    assert await reached(host, PUBLIC) == [PUBLIC]


async def test_a_public_ipv6_address_passes():
    assert await reached("[2606:2800:220:1::1]") == ["2606:2800:220:1::1"]


async def test_an_international_name_is_asked_for_in_its_ascii_form():
    asked = []

    async def resolve(host, port):
        asked.append((host, port))
        return [PUBLIC]

    await Guard(egress=Egress(), resolve=resolve).addresses("BÜCHER.example", 80)
    assert asked == [("xn--bcher-kva.example", 80)]


async def test_a_name_without_addresses_is_a_connection_error():
    with pytest.raises(ToolError) as caught:
        await reached("nowhere.example")
    assert (caught.value.kind, caught.value.code) == ("connection", "DNS_ERROR")


@pytest.mark.parametrize(
    ("host", "answer", "allow"),
    [
        ("127.0.0.1", "", ("127.0.0.0/8",)),
        ("2130706433", "", ("127.0.0.1",)),
        ("api.internal", "10.0.0.7", ("api.internal",)),
        ("API.internal.", "10.0.0.7", ("api.internal.",)),
        ("a.corp.example", "10.0.0.7", ("*.corp.example",)),
        ("other.example", "10.0.0.7", ("10.0.0.0/8",)),
        ("[fd12::1]", "", ("fd12::/16",)),
        ("::1", "", ("[::1]",)),
    ],
)
async def test_the_list_opens_hosts_and_networks(host, answer, allow):
    assert len(await reached(host, answer, allow=allow)) == 1


@pytest.mark.parametrize(
    ("host", "answer", "allow"),
    [
        ("corp.example", "10.0.0.7", ("*.corp.example",)),
        ("evilcorp.example", "10.0.0.7", ("*.corp.example", "corp.example")),
        ("other.example", "11.0.0.7", ("api.internal",)),
        ("::ffff:10.0.0.1", "", ("10.0.0.0/8",)),
        ("169.254.169.254", "", ("169.254.0.0/16", "169.254.169.254")),
        ("metadata.google.internal", PUBLIC, ("metadata.google.internal",)),
        ("api.internal", "169.254.169.254", ("api.internal",)),
    ],
)
async def test_the_list_opens_nothing_else(host, answer, allow):
    if answer == "11.0.0.7":
        assert await reached(host, answer, allow=allow) == [answer]
    else:
        await refused(host, answer, allow=allow)


async def test_our_own_server_is_reached_on_its_port_only():
    ours = ("http://127.0.0.1:8082", "https://gateway.internal/ui")
    assert await reached("127.0.0.1", port=8082, always=ours) == ["127.0.0.1"]
    assert await reached("gateway.internal", "10.0.0.1", port=443, always=ours) == ["10.0.0.1"]
    assert await refused("127.0.0.1", port=5432, always=ours) == "loopback"
    assert await refused("gateway.internal", "10.0.0.1", port=80, always=ours) == "private"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.1", "::1", "fe80::1", "64:ff9b::8.8.8.8", "::ffff:127.0.0.1"]
)
async def test_open_means_the_whole_network(host):
    assert len(await reached(host, mode="open")) == 1


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "2852039166", "[::ffff:a9fe:a9fe]", "64:ff9b::a9fe:a9fe", "fd00:ec2::254",
     "2002:a9fe:a9fe::", "metadata.google.internal", "100.100.100.200"],
)  # fmt: skip
async def test_open_does_not_open_the_metadata_services(host):
    assert await refused(host, PUBLIC, mode="open") == "metadata"


async def test_open_does_not_follow_a_name_to_the_metadata_services():
    assert await refused("friendly.example", "169.254.169.254", mode="open") == "metadata"


@pytest.mark.parametrize(
    ("scheme", "userinfo", "host", "reason"),
    [
        ("file", False, "", "scheme"),
        ("ftp", False, "example.com", "scheme"),
        ("gopher", False, "127.0.0.1", "scheme"),
        ("dict", False, "127.0.0.1", "scheme"),
        ("jar", False, "example.com", "scheme"),
        ("data", False, "", "scheme"),
        ("unix", False, "", "scheme"),
        ("http", True, "example.com", "userinfo"),
        ("https", True, "127.0.0.1", "userinfo"),
        ("http", False, "metadata.google.internal", "metadata"),
    ],
)
@pytest.mark.parametrize("mode", ["guarded", "open"])
def test_other_schemes_and_users_in_a_url_are_refused(mode, scheme, userinfo, host, reason):
    with pytest.raises(ToolError) as caught:
        Egress(mode=mode).refuse_url(scheme, userinfo, host)
    assert caught.value.details["reason"] == reason


def test_a_host_has_one_form():
    assert [host_of(text) for text in ("EXAMPLE.com.", "[::1]", "bücher.example")] == [
        "example.com", "::1", "xn--bcher-kva.example",
    ]  # fmt: skip


def test_a_name_is_no_literal():
    assert [literal(host) for host in ("example.com", "a-1", "0xg")] == [None, None, None]


def test_a_refusal_names_the_host_and_never_an_address():
    assert denied("private", "api.internal").message == (
        "requests to api.internal are refused (private);"
        " NOETL_HTTP_ALLOW of the workers may list it"
    )


@pytest.mark.parametrize("reason", ["metadata", "scheme", "userinfo", "host", "port"])
def test_what_no_setting_opens_names_none(reason):
    assert denied(reason, "h").message == f"requests to h are refused ({reason})"
