"""What a gateway is told: names, aliases, its file, and what it refuses to start with."""

from __future__ import annotations

import dataclasses
import json

import pytest

from noetl.cli.app import main
from noetl.gateway.config import read_file, settings_of
from noetl.settings import SETTINGS, BadSetting, GatewaySettings
from noetl.settings.table import FILES

NEEDED = {"NOETL_INTERNAL_API_TOKEN": "inner", "NOETL_NATS_URL": "nats://bus"}
CORP = {"name": "corp", "issuer": "https://id.example"}
PROVIDER = {"name": "corp", "issuer": "https://id.example", "client_id": "c", "audience": "a"}


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def gateway(file=None, **environ):
    return GatewaySettings.read(NEEDED | environ, file=file)


def test_a_gateway_with_its_token_and_bus_has_the_defaults():
    found = gateway()
    assert found == GatewaySettings(internal_token="inner", nats_url="nats://bus")  # noqa: S106 - a value
    assert (found.host, found.port, found.url) == ("0.0.0.0", 8090, "http://127.0.0.1:8090")  # noqa: S104 - a value


def test_every_field_names_a_setting_with_the_same_default():
    table = {setting.name: setting for setting in SETTINGS}
    model = gateway()
    fields = [one for one in dataclasses.fields(model) if one.metadata]
    for field in fields:
        name = field.metadata["setting"]
        setting = table[FILES.get(name, name)]
        if setting.default and field.name != "gateway_url":
            assert field.metadata["read"](setting.default) == getattr(model, field.name), name


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, "http://127.0.0.1:8090"),
        ({"GATEWAY_PUBLIC_URL": "https://noetl.example.com/"}, "https://noetl.example.com"),
        (
            {
                "GATEWAY_PUBLIC_URL": "https://noetl.example.com",
                "NOETL_GATEWAY_URL": "http://gateway.noetl.svc:8090/",
            },
            "http://gateway.noetl.svc:8090",
        ),
    ],
)
def test_playbooks_call_back_to_the_inner_address_before_the_public_one(environ, found):
    assert gateway(**environ).callback_url == found


@pytest.mark.parametrize(
    ("environ", "is_lost"),
    [
        ({}, True),
        ({"GATEWAY_BIND": "10.0.0.1"}, False),
        ({"GATEWAY_BIND": "127.0.0.1"}, False),
        ({"GATEWAY_BIND": "::"}, True),
        ({"GATEWAY_PUBLIC_URL": "https://noetl.example.com"}, False),
        ({"NOETL_GATEWAY_URL": "http://gateway:8090"}, False),
        ({"NOETL_GATEWAY_URL": "http://localhost:8090"}, True),
        ({"NOETL_GATEWAY_URL": "http://[::1]:8090"}, True),
    ],
)
def test_a_gateway_for_others_whose_playbooks_would_call_their_own_machine_knows_it(
    environ, is_lost
):
    assert gateway(**environ).is_called_back_here is is_lost


def test_an_alias_means_the_same_and_the_first_name_wins():
    assert gateway(GATEWAY_PORT="8095").port == 8095
    assert gateway(GATEWAY_PORT="8095", ROUTER_PORT="8096").port == 8096
    assert gateway(NOETL_BASE_URL="http://a").server_url == "http://a"
    found = GatewaySettings.read({"NOETL_INTERNAL_API_TOKEN": "t", "NATS_URL": "nats://a"})
    assert found.nats_url == "nats://a"


def test_what_kubernetes_says_of_a_service_called_gateway_is_no_setting():
    assert gateway(GATEWAY_PORT="tcp://10.0.0.1:8090").port == 8090
    assert gateway(GATEWAY_PORT="tcp://10.0.0.1:8090", ROUTER_PORT="8091").port == 8091


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_what_a_gateway_needs_is_named(missing):
    with pytest.raises(BadSetting) as caught:
        GatewaySettings.read({name: text for name, text in NEEDED.items() if name != missing})
    assert missing in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROUTER_PORT", "0"),
        ("ROUTER_PORT", "http"),
        ("GATEWAY_TRANSPORT_SSE_ENABLED", "perhaps"),
        ("GATEWAY_AUTH_MODE", "none"),
        ("NOETL_AUTH_VERIFY_SIGNATURE", "off"),
        ("NOETL_TIMEOUT_SECS", "long"),
        ("GATEWAY_PUBLIC_URL", "noetl.example"),
        ("NATS_SESSION_BUCKET", "a.b"),
        ("GATEWAY_METRICS_BIND", "9090"),
        ("GATEWAY_TRUSTED_PROXIES", "proxy.example"),
    ],
)
def test_a_bad_value_is_named(name, value):
    with pytest.raises(BadSetting, match=name):
        gateway(**{name: value})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gateway.example"])  # noqa: S104 - values
def test_everybody_is_let_in_on_this_machine_alone(host):
    with pytest.raises(BadSetting, match="GATEWAY_AUTH_BYPASS"):
        gateway(GATEWAY_AUTH_BYPASS="true", GATEWAY_BIND=host)
    with pytest.raises(BadSetting, match="GATEWAY_AUTH_BYPASS"):
        gateway(GATEWAY_AUTH_BYPASS="true", GATEWAY_BIND=host, GATEWAY_ALLOW_INSECURE="true")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_on_this_machine_everybody_may_be_let_in(host):
    assert gateway(GATEWAY_AUTH_BYPASS="true", GATEWAY_BIND=host).is_auth_bypassed


@pytest.mark.parametrize(
    "switch",
    [{"GATEWAY_CALLBACK_REQUIRE_TOKEN": "false"}, {"GATEWAY_QUERY_TOKEN_ENABLED": "true"}],
    ids=lambda switch: next(iter(switch)),
)
def test_switches_that_make_less_safe_need_a_second_word_elsewhere(switch):
    (name,) = switch
    with pytest.raises(BadSetting, match=name):
        gateway(**switch)
    assert gateway(**switch, GATEWAY_BIND="127.0.0.1").switches
    assert gateway(**switch, GATEWAY_ALLOW_INSECURE="true").switches["allow_insecure"]


def test_any_page_with_credentials_stops_the_start():
    with pytest.raises(BadSetting, match="CORS_ALLOWED_ORIGINS"):
        gateway(CORS_ALLOWED_ORIGINS="https://a.example,*")
    found = gateway(CORS_ALLOWED_ORIGINS="*", CORS_ALLOW_CREDENTIALS="false")
    assert found.cors_origins == ("*",)


def test_secrets_are_not_shown():
    found = gateway(NATS_PASSWORD="hidden", NOETL_OIDC_CLIENT_SECRET="hidden2")  # noqa: S106 - values
    assert "hidden" not in str(found.shown())
    assert set(found.shown()["internal_token"]) == {"*"}


def test_providers_of_variables_and_of_the_file_are_one_list():
    found = gateway(
        {"providers": [PROVIDER]},
        NOETL_OIDC_ISSUER="https://issuer.example",
        NOETL_OIDC_CLIENT_ID="us",
        GATEWAY_AUTH0_DOMAIN="us.auth0.com",
        GATEWAY_AUTH0_CLIENT_ID="them",
        GATEWAY_AUTH0_AUDIENCE="api",
    )
    assert [(one.name, one.issuer, one.audience) for one in found.providers] == [
        ("oidc", "https://issuer.example", "us"),
        ("auth0", "https://us.auth0.com/", "api"),
        ("corp", "https://id.example", "a"),
    ]


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        ({"name": "Big"}, "lower case"),
        (PROVIDER | {"audience": ""}, "needs `audience`"),
        (PROVIDER | {"isuer": "x"}, "did you mean `issuer`"),
        (PROVIDER | {"scopes": "openid"}, "no list"),
        (PROVIDER | {"auto_provision": "yes"}, "`true` or `false`"),
    ],
    ids=["name", "missing", "unknown", "list", "flag"],
)
def test_a_provider_that_cannot_be_used_is_named(provider, told):
    with pytest.raises(BadSetting, match=told):
        gateway({"providers": [provider]})


def test_the_secret_of_a_provider_may_lie_in_a_file(tmp_path):
    file = tmp_path / "secret"
    file.write_text("of a file\n", encoding="utf-8")
    for given in ({"client_secret_file": str(file)}, {"client_secret": f"file://{file}"}):
        (found,) = gateway({"providers": [{**PROVIDER, **given}]}).providers
        assert found.client_secret == "of a file"  # noqa: S105 - of a test
        assert "of a file" not in repr(found)
    for given in (
        {"client_secret_file": str(file), "client_secret": "a"},
        {"client_secret_file": str(tmp_path / "none")},
    ):
        with pytest.raises(BadSetting, match="client_secret"):
            gateway({"providers": [{**PROVIDER, **given}]})


def test_the_secret_of_a_provider_may_lie_in_the_wallet(tmp_path):
    (found,) = gateway({"providers": [{**PROVIDER, "client_secret_alias": "idp/corp"}]}).providers
    assert (found.client_secret, found.client_secret_alias) == ("", "idp/corp")
    for given in (
        {"client_secret_alias": "a", "client_secret": "s"},
        {"client_secret_alias": "a", "client_secret_file": str(tmp_path / "none")},
        {"client_secret_alias": "a b"},
        {"client_secret_alias": "-"},
        {"client_secret_alias": 7},
    ):
        with pytest.raises(BadSetting, match="client_secret"):
            gateway({"providers": [{**PROVIDER, **given}]})


def test_two_providers_of_one_name_are_a_mistake():
    with pytest.raises(BadSetting, match="corp"):
        gateway({"providers": [PROVIDER, PROVIDER]})
    with pytest.raises(BadSetting, match="needs NOETL_OIDC_CLIENT_ID"):
        gateway(NOETL_OIDC_ISSUER="https://issuer.example")


def test_the_environment_wins_over_the_file_by_whichever_name():
    file = {"router_port": 1, "cors_allowed_origins": ["https://a.example"], "bind": "127.0.0.1"}
    assert gateway(file).port == 1
    assert gateway(file).cors_origins == ("https://a.example",)
    assert gateway(file).host == "127.0.0.1"
    assert gateway(file, GATEWAY_PORT="2").port == 2
    assert gateway(file, GATEWAY_PORT="tcp://10.0.0.1:8090").port == 1
    assert GatewaySettings.read(NEEDED, file=file, port=3).port == 3


@pytest.mark.parametrize(
    ("key", "near"),
    [("cors_alowed_origins", "cors_allowed_origins"), ("provider", "providers"),
     ("ROUTER_PRT", "router_port"), ("worker_pool_name", "")],
)  # fmt: skip
def test_an_unknown_key_of_the_file_stops_the_start_with_the_nearest_name(key, near):
    with pytest.raises(BadSetting, match=key) as caught:
        gateway({key: "x"})
    assert near in caught.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.yaml", "router_port: 8099\nproviders:\n  - {name: corp, issuer: 'https://id.example'}\n"),
        ("g.toml", 'router_port = 8099\n[[providers]]\nname = "corp"\nissuer = "https://id.example"'),
        ("g.json", json.dumps({"router_port": 8099, "providers": [CORP]})),
    ],
    ids=["yaml", "toml", "json"],
)  # fmt: skip
def test_the_file_is_yaml_toml_or_json(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert read_file(file) == {
        "router_port": 8099,
        "providers": [CORP],
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [("g.yaml", "a: [1\n"), ("g.toml", "a = "), ("g.json", "{"), ("g.ini", "a=1"), ("g.json", "[]"),
     ("g.yaml", "- 1\n")],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadSetting, match=name):
        read_file(file)
    with pytest.raises(BadSetting, match=r"none\.yaml"):
        read_file(tmp_path / "none.yaml")


def test_the_file_is_named_by_a_variable_or_an_option(tmp_path):
    file = tmp_path / "g.json"
    file.write_text(json.dumps({"router_port": 8099}), encoding="utf-8")
    assert settings_of(NEEDED | {"GATEWAY_CONFIG": str(file)}).port == 8099
    assert settings_of(NEEDED, config=str(file)).port == 8099


@pytest.mark.parametrize(
    "environ",
    [{"GATEWAY_AUTH_BYPASS": "true"}, {"ROUTER_PORT": "many"}, {"GATEWAY_CONFIG": "none.yaml"},
     {"CORS_ALLOWED_ORIGINS": "*"}],
    ids=["bypass", "port", "config", "cors"],
)  # fmt: skip
def test_a_gateway_that_is_told_what_it_cannot_use_ends_with_78(environ, monkeypatch, capsys):
    for name, value in (NEEDED | environ).items():
        monkeypatch.setenv(name, value)
    assert main(["gateway"]) == 78
    told = capsys.readouterr().err
    assert "gateway.bad_setting" in told
    assert next(iter(environ)) in told


def test_the_settings_in_force_are_shown(monkeypatch, capsys):
    for name, value in (NEEDED | {"GATEWAY_PORT": "tcp://10.0.0.1:8090"}).items():
        monkeypatch.setenv(name, value)
    assert main(["gateway", "--print-settings", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["port"], shown["internal_token"]) == (8090, "***")
