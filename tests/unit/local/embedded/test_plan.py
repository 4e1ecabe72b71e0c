import asyncio
from base64 import b64decode
from stat import S_IMODE

import pytest

from noetl.local.embedded.home import Home
from noetl.local.embedded.plan import (
    Addresses,
    Keys,
    environment,
    gateway,
    listener,
    places,
    server,
    worker,
)
from noetl.local.embedded.probe import ask, is_well
from noetl.local.embedded.wish import BindRefused, Wish
from noetl.secrets.kek.local import LocalKek
from noetl.server.access.tokens import is_token
from noetl.settings import (
    GatewaySettings,
    ServerSettings,
    StackSettings,
    SubscriptionSettings,
    WorkerSettings,
)

AT = Addresses(host="127.0.0.1", port=8082, scheme="http", nats="")
DOOR = Addresses(host="127.0.0.1", port=8082, scheme="http", nats="", gateway_port=8090)


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


@pytest.fixture
def keys(home):
    made = Keys(home, ("shared", "system"))
    made.make()
    home.keep("database.url", "postgresql://u:p@127.0.0.1:1/noetl")
    home.keep("nats.url", "nats://u:p@127.0.0.1:1")
    return made


def wish(home, **more):
    return Wish(settings=StackSettings(home=home.path, **more))


def test_each_secret_is_made_once_and_every_bearer_is_a_token(home, keys):
    before = {file.name: file.read_text() for file in home.folder("secrets").iterdir()}
    keys.make()
    bearers = keys.bearers()

    assert {file.name: file.read_text() for file in home.folder("secrets").iterdir()} == before
    assert [(one.account, one.roles, one.pool) for one in bearers] == [
        ("admin", ("admin",), None),
        ("runtime", ("runtime",), None),
        ("worker:shared", ("worker",), "shared"),
    ]
    assert all(is_token(one.token) for one in bearers)
    assert set(before) == {
        "admin.token", "internal.token", "runtime.token", "worker-shared.token",
        "nats.password", "encryption.key", "database.url", "nats.url",
    }  # fmt: skip


def test_the_key_of_secrets_is_one_that_the_wallet_takes_and_nobody_else_reads(home, keys):
    file = home.secret_file("encryption.key")

    assert len(b64decode(file.read_text())) == 32
    assert LocalKek(keys.read("encryption.key")).provider == "local"
    assert S_IMODE(file.stat().st_mode) == 0o600


def test_a_server_reads_its_settings_from_what_it_is_given(home, keys):
    child = server(home, wish(home), AT, print)
    found = ServerSettings.read(child.environ)

    assert child.command[-1] == "server"
    assert (found.port, found.metrics_port, found.home) == (8082, None, home.path)
    assert found.database_url == "postgresql://u:p@127.0.0.1:1/noetl"
    assert found.nats_url == "nats://u:p@127.0.0.1:1"
    assert found.internal_token == keys.read("internal.token")
    assert found.encryption_key == keys.read("encryption.key")
    secrets = [file.read_text().strip() for file in home.folder("secrets").iterdir()]
    assert not set(secrets) & {*child.environ.values(), *child.command}


def test_workers_read_theirs_each_with_the_token_of_its_pool(home, keys):
    shared = worker(home, wish(home), AT, "shared", 8, print)
    system = worker(home, wish(home), AT, "system", 2, print)
    one, two = WorkerSettings.read(shared.environ), WorkerSettings.read(system.environ)

    assert (one.pool, one.slots, one.token) == ("shared", 8, keys.read("worker-shared.token"))
    assert (two.pool, two.slots, two.token) == ("system", 2, keys.read("internal.token"))
    assert one.internal_token == ""
    assert one.metrics_bind == f"127.0.0.1:{shared.port}"
    assert (one.server_url, one.http_egress) == ("http://127.0.0.1:8082", "open")
    assert one.worker_id.endswith(f"-shared-{home.digest}")


def test_a_listener_reads_its_own_with_a_token_that_no_other_has(home, keys):
    child = listener(home, wish(home), AT, "listener-a-b", "a/b", print)
    found = SubscriptionSettings.read(child.environ, paths=(child.command[-1],))

    assert child.command[-4:] == ["--mode", "subscription", "--subscription", "a/b"]
    assert (found.paths, found.bearer) == (("a/b",), keys.read("runtime.token"))
    assert found.spool_default == f"local_disk:{home.folder('spool')}"
    assert found.runtime_id.endswith(f"-listener-a-b-{home.digest}")
    assert (found.nats_url, found.internal_token) == ("nats://u:p@127.0.0.1:1", "")


def test_a_gateway_reads_its_settings_from_what_it_is_given(home, keys, monkeypatch):
    monkeypatch.setenv("NOETL_ENCRYPTION_KEY", "not-for-the-gateway")
    monkeypatch.setenv("NOETL_OIDC_CLIENT_SECRET", "for-the-gateway-alone")
    monkeypatch.setenv("GATEWAY_PORT", "1")
    monkeypatch.setenv("GATEWAY_BIND", "::")
    child = gateway(home, wish(home), DOOR, print)
    found = GatewaySettings.read(child.environ)

    assert (child.command[-1], child.health) == ("gateway", "http://127.0.0.1:8090/ready")
    assert (found.host, found.port, found.public_url) == (
        "127.0.0.1", 8090, "http://127.0.0.1:8090",
    )  # fmt: skip
    assert (found.server_url, found.nats_url) == (
        "http://127.0.0.1:8082", "nats://u:p@127.0.0.1:1",
    )  # fmt: skip
    assert found.internal_token == keys.read("internal.token")
    assert found.internal_token_file == str(home.secret_file("internal.token"))
    assert (found.shows_schema, found.has_pages) == (True, True)
    assert found.spool_default == f"local_disk:{home.folder('spool')}"
    assert "not-for-the-gateway" not in child.environ.values()
    secrets = [file.read_text().strip() for file in home.folder("secrets").iterdir()]
    assert not set(secrets) & {*child.environ.values(), *child.command}
    others = (
        server(home, wish(home), DOOR, print),
        worker(home, wish(home), DOOR, "shared", 1, print),
    )
    for other in others:
        assert "for-the-gateway-alone" not in other.environ.values()
        assert other.environ["NOETL_GATEWAY_URL"] == "http://127.0.0.1:8090"
    assert "NOETL_GATEWAY_URL" not in environment(home, wish(home), AT)


def test_what_is_told_of_the_gateway_wins_over_what_a_stack_has(home, keys, monkeypatch):
    monkeypatch.setenv("GATEWAY_GRAPHQL_INTROSPECTION", "false")
    asked = Wish(
        settings=StackSettings(home=home.path, public_url="https://noetl.example.org"),
        has_pages=False,
    )
    found = GatewaySettings.read(gateway(keys.home, asked, DOOR, print).environ)

    assert (found.public_url, found.callback_url) == ("https://noetl.example.org",) * 2
    assert (found.shows_schema, found.has_pages) == (False, False)


def test_an_open_address_has_no_public_one_of_its_own(home, keys):
    everywhere = Addresses(host="0.0.0.0", port=1, scheme="http", nats="", gateway_port=2)  # noqa: S104 - a value
    found = GatewaySettings.read(gateway(keys.home, wish(home), everywhere, print).environ)

    assert (found.host, found.public_url) == ("0.0.0.0", "")  # noqa: S104 - as above
    assert everywhere.gateway == "http://127.0.0.1:2"


def test_the_environment_of_whoever_starts_it_counts_where_the_stack_has_no_say(
    home, keys, monkeypatch
):
    monkeypatch.setenv("NOETL_LEASE_SECONDS", "60")
    monkeypatch.setenv("NOETL_PORT", "1")
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgresql://other")
    monkeypatch.setenv("NOETL_ENCRYPTION_KEY", "mine")
    monkeypatch.setenv("FOREIGN", "x")

    made = environment(home, wish(home), AT)
    found = ServerSettings.read(server(home, wish(home), AT, print).environ)

    assert "FOREIGN" not in made
    assert (found.lease_s, found.port, found.encryption_key) == (60, 8082, "mine")
    assert found.database_url == "postgresql://u:p@127.0.0.1:1/noetl"
    assert keys.pools == ("shared", "system")


def test_the_file_of_settings_of_the_folder_counts_else_the_one_of_the_caller(home, keys, tmp_path):
    def lease():
        asked = wish(home, config=tmp_path / "noetl.toml")
        return ServerSettings.read(server(home, asked, AT, print).environ).lease_s

    assert (lease(), keys.home) == (15, home)
    (tmp_path / "noetl.toml").write_text("lease_seconds = 20\n")
    assert lease() == 20
    (home.path / "config.toml").write_text("lease_seconds = 30\nport = 1\n")
    assert lease() == 30


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_nothing_more(home, host):
    wish(home, host=host).check()


@pytest.mark.parametrize(
    ("more", "is_insecure", "reason"),
    [
        ({}, False, "without TLS"),
        ({}, True, "without sign-in"),
        ({"tls_cert": "c", "tls_key": "k"}, False, "without sign-in"),
        ({"oidc_issuer": "https://id"}, False, "without TLS"),
    ],
)
def test_another_address_needs_tls_and_sign_in(home, more, is_insecure, reason):
    settings = StackSettings(home=home.path, host="0.0.0.0", **more)  # noqa: S104 - the point

    with pytest.raises(BindRefused, match=reason):
        Wish(settings=settings, is_insecure=is_insecure).check()


@pytest.mark.parametrize("tls", [{"tls_cert": "c", "tls_key": "k"}, {}])
@pytest.mark.parametrize(
    "sign_in", [{"oidc_issuer": "https://id"}, {"admin_password": "a long enough secret"}]
)
def test_an_issuer_or_a_password_of_the_admin_is_a_sign_in(home, tls, sign_in):
    settings = StackSettings(home=home.path, host="0.0.0.0", **tls, **sign_in)  # noqa: S104 - the point

    Wish(settings=settings, is_insecure=not tls).check()


def test_the_password_of_the_admin_is_given_to_no_part(home, keys, monkeypatch):
    monkeypatch.setenv("NOETL_ADMIN_PASSWORD", "a long enough secret")
    asked = wish(home, admin_password="a long enough secret")  # noqa: S106 - of a test
    parts = (
        server(keys.home, asked, DOOR, print),
        gateway(home, asked, DOOR, print),
        worker(home, asked, DOOR, "shared", 1, print),
        worker(home, asked, DOOR, "system", 1, print),
        listener(home, asked, DOOR, "listener-a-b", "a/b", print),
    )
    told = [{*part.environ.values(), *part.command} for part in parts]
    assert [part for part in told if "a long enough secret" in part] == []


def test_an_open_address_is_reached_from_here_over_loopback():
    everywhere = Addresses(host="0.0.0.0", port=1, scheme="https", nats="")  # noqa: S104 - a value

    assert everywhere.server == "https://127.0.0.1:1"
    assert Addresses(host="::1", port=1, scheme="http", nats="").server == "http://[::1]:1"


def test_data_outside_of_a_home_have_a_place_by_its_name(home, tmp_path):
    assert places(home) == places(home)
    assert places(home) != places(Home(tmp_path / "other"))


async def test_a_question_is_answered_or_not():
    async def serve(reader, writer):
        asked = await reader.readuntil(b"\r\n\r\n")
        status = b"200 OK" if b"GET /well " in asked and b"A: b" in asked else b"503 No"
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\nbody")
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        assert await ask(f"http://127.0.0.1:{port}/well", {"A": "b"}) == (200, b"body")
        assert not await is_well(f"http://127.0.0.1:{port}/other")
    assert await ask(f"http://127.0.0.1:{port}/well") is None
