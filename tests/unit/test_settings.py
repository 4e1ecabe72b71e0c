import dataclasses
import re
from pathlib import Path

import pytest

from noetl.settings import (
    SETTINGS,
    BadSetting,
    CliSettings,
    DatabaseSettings,
    GatewaySettings,
    ServerSettings,
    StackSettings,
    SubscriptionSettings,
    TraceSettings,
    WorkerSettings,
    child_environment,
    command,
    lifted_names,
    process_environment,
    variable,
    warnings,
)
from noetl.settings.table import ALIASES, FILES

DATABASE = "postgresql://db/noetl"


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def server(**environ):
    return ServerSettings.read({"NOETL_DATABASE_URL": DATABASE} | environ)


def worker(**environ):
    return WorkerSettings.read({"WORKER_POOL_NAME": "shared"} | environ)


def test_an_empty_environment_gives_the_defaults():
    assert CliSettings.read({}) == CliSettings(
        output="table", no_color=False, term="", columns=None
    )


def test_every_name_reaches_its_field():
    environ = {"NOETL_OUTPUT": "json", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}
    environ |= {"NOETL_CONTEXT": "prod", "NOETL_BASE_URL": "http://a", "NOETL_TOKEN": "t"}
    environ |= {"NOETL_SESSION_TOKEN": "s", "NOETL_HOME": "/h", "XDG_CONFIG_HOME": "/c"}

    assert CliSettings.read(environ) == CliSettings(
        output="json",
        no_color=True,
        term="xterm",
        columns=80,
        context="prod",
        server_url="http://a",
        token="t",  # noqa: S106 - a value
        session_token="s",  # noqa: S106 - a value
        home=Path("/h"),
        config_home=Path("/c/noetl"),
    )


def test_without_an_argument_the_environment_of_the_process_is_read(monkeypatch):
    monkeypatch.setenv("NOETL_OUTPUT", "yaml")
    monkeypatch.setenv("NOETL_OUTPUTS", "yaml")

    assert CliSettings.read().output == "yaml"
    assert "NOETL_OUTPUTS is not a setting of NoETL; did you mean NOETL_OUTPUT?" in warnings()


def test_an_empty_output_means_the_default():
    assert CliSettings.read({"NOETL_OUTPUT": ""}).output == "table"


def test_no_color_counts_even_when_it_is_empty():
    assert CliSettings.read({"NO_COLOR": ""}).no_color is True


@pytest.mark.parametrize(
    ("environ", "is_plain"),
    [({}, False), ({"TERM": "xterm"}, False), ({"TERM": "dumb"}, True), ({"NO_COLOR": "1"}, True)],
)
def test_no_color_and_a_dumb_terminal_ask_for_plain_output(environ, is_plain):
    assert CliSettings.read(environ).is_plain is is_plain


@pytest.mark.parametrize("columns", ["", "0", "-1", "wide", "1.5", "²"])
def test_a_width_that_is_no_whole_number_above_zero_is_not_taken(columns):
    assert CliSettings.read({"COLUMNS": columns}).columns is None


def test_a_width_that_cannot_be_read_is_a_warning():
    assert warnings({"COLUMNS": "wide"}) == [
        "COLUMNS is not a whole number above zero: 'wide' is ignored."
    ]


def test_known_and_foreign_names_give_no_warning():
    assert warnings({"NOETL_OUTPUT": "json", "PATH": "/bin", "COLUMNS": "80"}) == []
    assert warnings({"COLUMNS": ""}) == []


def test_a_name_that_nothing_reads_yet_is_a_warning_when_it_is_set():
    assert warnings({"NOETL_SHARDS_FILE": "/s", "NATS_CONSUMER": "c", "NOETL_SHARD_COUNT": ""}) == [
        "NOETL_SHARDS_FILE is set, and nothing reads it yet.",
        "NATS_CONSUMER is set, and nothing reads it yet.",
    ]


def test_an_unknown_name_is_a_warning_with_the_nearest_known_one():
    assert warnings({"NOETL_OUPTUT": "json"}) == [
        "NOETL_OUPTUT is not a setting of NoETL; did you mean NOETL_OUTPUT?"
    ]


def test_an_unknown_name_that_is_near_to_nothing_says_where_the_known_ones_are():
    assert warnings({"NOETL_ZZZ": "1"}) == [
        "NOETL_ZZZ is not a setting of NoETL; `noetl explain` lists the known ones."
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NOETL_PORT", "tcp://10.0.0.7:8082"),
        ("NOETL_SERVICE_HOST", "10.0.0.7"),
        ("NOETL_SERVICE_PORT", "8082"),
        ("NOETL_SERVICE_PORT_HTTP", "8082"),
        ("NOETL_SERVER_PORT_8082_TCP", "tcp://10.0.0.7:8082"),
        ("NOETL_SERVER_PORT_8082_TCP_ADDR", "10.0.0.7"),
    ],
)
def test_the_variables_of_kubernetes_services_are_ignored(name, value):
    assert warnings({name: value}) == []


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CliSettings().output = "json"


def test_each_name_is_in_the_table_once_and_says_what_it_means_in_one_sentence():
    names = [setting.name for setting in SETTINGS]

    assert sorted(set(names)) == sorted(names)
    assert [s.name for s in SETTINGS if not s.meaning.endswith(".")] == []


@pytest.mark.parametrize("process", ["server", "worker", "gateway", "subscription", "cli"])
def test_the_table_names_a_process_where_that_reads_the_setting_and_nowhere_else(process):
    models = {
        "server": [ServerSettings],
        "worker": [WorkerSettings],
        "gateway": [GatewaySettings],
        "subscription": [SubscriptionSettings],
        "cli": [StackSettings, DatabaseSettings, TraceSettings],
    }[process]
    fields = [field for model in models for field in dataclasses.fields(model) if field.metadata]
    read = {field.metadata["setting"] for field in fields} | {"NOETL_CONFIG"}
    if process in {"cli", "worker"}:
        read |= {"PATH", "LANG", "TZ"}  # of the children of steps
    if process == "cli":
        text = Path(command.__file__).read_text(encoding="utf-8")
        found = re.findall(r'(?:env|environ\))\.get\("(\w+)"|"(\w+)" in env', text)
        read |= {name for names in found for name in names if name} - ALIASES
    named = {setting.name for setting in SETTINGS if process in setting.processes}

    assert named == {FILES.get(name, name) for name in read}


def test_names_that_nothing_reads_yet_are_known():
    assert {setting.name for setting in SETTINGS if not setting.processes} == {
        "NATS_CONSUMER",
        "NATS_FILTER_SUBJECT",
        "NOETL_ALERT_CHANNELS",
        "NOETL_CLUSTER_DSN",
        "NOETL_SHARDS",
        "NOETL_SHARD_COUNT",
        "NOETL_SHARD_INDEX",
        "NOETL_SHARD_INDEX_FROM_HOSTNAME",
    }


def test_children_get_three_names_of_the_environment_and_no_more():
    given = {"PATH": "/bin", "LANG": "de_CH.UTF-8", "TZ": "UTC", "TOKEN": "secret"}

    assert child_environment(given) == {"PATH": "/bin", "LANG": "de_CH.UTF-8", "TZ": "UTC"}
    assert child_environment({}).keys() == {"PATH", "LANG"}


def test_a_variable_is_read_by_the_name_that_the_caller_gives():
    assert (variable("A", {"A": "1"}), variable("B", {"A": "1"})) == ("1", None)


def test_names_of_processes_to_come_secrets_in_files_and_aliases_are_known():
    names = ("ROUTER_PORT", "NOETL_KMS_KEY", "NOETL_TOKEN_FILE", "NOETL_BASE_URL", "NATS_URL")
    assert warnings(dict.fromkeys((*names, "NOETL_MCP_GITHUB_ENDPOINT"), "x")) == []
    assert warnings({"NOETL_HOME_FILE": "x"}) != []


def test_a_server_with_nothing_but_its_database_has_the_defaults():
    found = server()

    assert found == ServerSettings(database_url=DATABASE, metrics_port=9090)
    assert (found.url, found.internal_tokens) == ("http://127.0.0.1:8082", ())


def test_every_setting_of_a_server_reaches_its_field():
    found = server(
        NOETL_HOST="0.0.0.0",  # noqa: S104 - a value
        NOETL_PORT="8083",
        NOETL_METRICS_PORT="off",
        NOETL_LEASE_SECONDS="7.5",
        NOETL_MACHINE_ID="1023",
        NATS_URL="nats://a:1,nats://b:2",
        NOETL_INTERNAL_API_TOKEN="new",  # noqa: S106 - a value
        NOETL_INTERNAL_API_TOKEN_PREVIOUS="old",  # noqa: S106 - a value
        NOETL_SHARD_SERVERS="http://a, http://b",
        NOETL_TLS_CERT="c",
        NOETL_TLS_KEY="k",
        NOETL_TLS_CLIENT_CA="a",
        NOETL_PUBLIC_SERVER_URL="https://noetl.example",
    )

    assert (found.host, found.port, found.metrics_port) == ("0.0.0.0", 8083, None)  # noqa: S104 - a value
    assert (found.lease_s, found.machine_id) == (7.5, 1023)
    assert found.nats_url == "nats://a:1,nats://b:2"
    assert found.internal_tokens == ("new", "old")
    assert found.servers == ("http://a", "http://b")
    assert found.url == "https://0.0.0.0:8083"
    assert (found.tls_client_ca, found.public_url) == ("a", "https://noetl.example")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NOETL_PORT": "0"}, "NOETL_PORT has to be a whole number in 1..65535, not '0'."),
        (
            {"NOETL_LEASE_SECONDS": "4"},
            "NOETL_LEASE_SECONDS has to be a number in 5..3600, not '4'.",
        ),
        (
            {"NOETL_LEASE_SECONDS": "x"},
            "NOETL_LEASE_SECONDS has to be a number in 5..3600, not 'x'.",
        ),
        ({"NOETL_ENV": "prod"}, "NOETL_ENV has to be `dev` or `production`, not 'prod'."),
        (
            {"NOETL_DATABASE_URL": "mysql://u:secret@x"},
            "NOETL_DATABASE_URL has to be an address that starts with "  # noqa: ISC004 - one sentence
            "`postgresql://` or `postgres://`.",
        ),
        (
            {"NOETL_TLS_CERT": "c"},
            "NOETL_TLS_CERT and NOETL_TLS_KEY go together; one of them is unset.",
        ),
        ({"NOETL_TLS_CLIENT_CA": "a"}, "NOETL_TLS_CLIENT_CA needs NOETL_TLS_CERT."),
        (
            {"NOETL_METRICS_PORT": "8082"},
            "NOETL_METRICS_PORT and NOETL_PORT are the same port.",
        ),
        (
            {"NOETL_MACHINE_ID": "1024"},
            "NOETL_MACHINE_ID has to be a whole number in 0..1023, not '1024'.",
        ),
    ],
)
def test_a_value_out_of_its_limits_is_refused_in_one_sentence(environ, message):
    with pytest.raises(BadSetting) as refused:
        server(**environ)

    assert refused.value.message == message


def test_a_server_without_a_database_is_refused():
    with pytest.raises(BadSetting, match="needs a database"):
        ServerSettings.read({})


def test_options_win_over_variables_and_variables_over_the_file(tmp_path):
    (tmp_path / "noetl.toml").write_text('port = 1\nhost = "a"\nlog_level = "debug"\n')
    environ = {"NOETL_DATABASE_URL": DATABASE, "NOETL_PORT": "2", "NOETL_HOST": "b"}

    found = ServerSettings.read(environ, port=3, host=None)

    assert (found.port, found.host, found.log_level) == (3, "b", "debug")


def test_a_file_of_settings_takes_short_and_whole_names_lists_and_tables(tmp_path):
    file = tmp_path / "other.toml"
    file.write_text(
        'worker_pool_name = "gpu"\nhttp_allow = ["a", "b"]\nshell = false\nNOETL_ENV = "dev"\n'
        "[worker_kind_limits]\nhttp = 2\n"
    )

    found = WorkerSettings.read({"NOETL_CONFIG": str(file)})

    assert (found.pool, found.http_allow) == ("gpu", ("a", "b"))
    assert (found.is_shell_on, found.kind_limits) == (False, {"http": 2})


@pytest.mark.parametrize("text", ["port = [", "port = 2020-01-01"])
def test_a_file_of_settings_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "noetl.toml").write_text(text)

    with pytest.raises(BadSetting, match=r"noetl\.toml"):
        server()


def test_a_file_of_settings_that_is_named_has_to_be_there():
    with pytest.raises(BadSetting, match="which does not exist"):
        server(NOETL_CONFIG="nowhere.toml")


def test_a_secret_is_read_from_a_file_of_either_form(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hidden\n")

    assert worker(NOETL_WORKER_TOKEN_FILE=str(file)).token == "hidden"  # noqa: S105 - a value
    assert worker(NOETL_WORKER_TOKEN=f"file://{file}").token == "hidden"  # noqa: S105 - a value
    with pytest.raises(BadSetting, match="cannot be read: No such file"):
        worker(NOETL_WORKER_TOKEN_FILE="/nowhere")  # noqa: S106 - a name


def test_what_is_no_secret_is_not_read_from_a_file(tmp_path):
    (tmp_path / "host").write_text("x")

    assert server(NOETL_HOST_FILE=str(tmp_path / "host")).host == "127.0.0.1"


def test_in_production_an_unknown_name_is_an_error_and_so_is_a_missing_key():
    production = {"NOETL_ENV": "production", "NOETL_ENCRYPTION_KEY": "k"}

    assert server(**production).env == "production"
    with pytest.raises(BadSetting, match="did you mean NOETL_HOST"):
        server(**production, NOETL_HSOT="x")
    with pytest.raises(BadSetting, match="NOETL_ENCRYPTION_KEY is required"):
        server(NOETL_ENV="production")
    with pytest.raises(BadSetting, match="never in production"):
        server(**production, NOETL_FAILPOINTS="a=crash")


def test_an_address_of_a_service_is_no_port():
    assert server(NOETL_PORT="tcp://10.0.0.1:80").port == 8082


def test_a_worker_has_the_slots_and_the_token_of_its_pool():
    shared, system = worker(), worker(WORKER_POOL_NAME="system", NOETL_INTERNAL_API_TOKEN="i")  # noqa: S106 - a value

    assert (shared.slots, shared.token, shared.metrics_bind) == (16, "", "0.0.0.0:9090")
    assert (system.slots, system.token) == (4, "i")
    assert worker(WORKER_POOL_NAME="system", WORKER_MAX_CONCURRENT="9").slots == 9
    assert worker(PORT="81").metrics_bind == "0.0.0.0:81"


@pytest.mark.parametrize("pool", ["", "Shared", "-x", "a" * 64])
def test_a_worker_without_a_good_pool_is_refused(pool):
    with pytest.raises(BadSetting) as refused:
        worker(WORKER_POOL_NAME=pool)

    assert refused.value.code == "worker.bad_pool"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("WORKER_MEMORY_HIGH", "80 %", 0.8),
        ("WORKER_MEMORY_HIGH", "0.5", 0.5),
        ("WORKER_KIND_LIMITS", "snowflake=2,container=8", {"snowflake": 2, "container": 8}),
        ("WORKER_HEARTBEAT_INTERVAL", "5 s", 5.0),
    ],
)
def test_the_forms_of_values(name, value, expected):
    assert expected in dataclasses.asdict(worker(**{name: value})).values()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_MEMORY_HIGH", "120 %"),
        ("WORKER_KIND_LIMITS", "http"),
        ("WORKER_METRICS_BIND", "9090"),
        ("NOETL_SHELL", "perhaps"),
        ("WORKER_MODE", "watching"),
        ("NOETL_CONTAINER_NAMESPACE", "noetl,No Such"),
        ("NOETL_CONTAINER_ALLOW_PROCESS", "perhaps"),
        ("WORKER_MAX_CONCURRENT", "257"),
    ],
)
def test_values_of_a_worker_that_cannot_be_used_are_refused(name, value):
    with pytest.raises(BadSetting, match=name):
        worker(**{name: value})


def test_a_stack_takes_any_free_port():
    assert StackSettings.read({}, port="auto").port == 0
    with pytest.raises(BadSetting, match="or `auto`"):
        StackSettings.read({"NOETL_PORT": "many"})


def test_settings_are_shown_without_their_secrets():
    shown = server(NATS_PASSWORD="hidden").shown()  # noqa: S106 - a value

    assert (shown["nats_password"], shown["database_url"], shown["port"]) == ("***", "***", 8082)
    assert "hidden" not in str(shown)


def test_every_field_names_a_setting_with_the_same_default():
    for model in (server(), worker(), StackSettings.read({})):
        table = {setting.name: setting for setting in SETTINGS}
        for field in dataclasses.fields(model):
            name = field.metadata["setting"]
            setting = table[FILES.get(name, name)]
            if setting.default and field.name not in {"metrics_bind", "server_url"}:
                made = field.metadata["read"](setting.default)
                assert made == getattr(model, field.name), setting.name


def test_where_the_internal_token_lies_is_known_so_that_it_can_be_read_again(tmp_path):
    file = tmp_path / "token"
    file.write_text("inner\n", encoding="utf-8")
    found = server(NOETL_INTERNAL_API_TOKEN_FILE=str(file))
    assert (found.internal_token, found.internal_token_file) == ("inner", str(file))
    assert (found.shown()["internal_token"], server().internal_token_file) == ("***", "")
    told = server(NOETL_INTERNAL_API_TOKEN_FILE=str(file), NOETL_INTERNAL_API_TOKEN="told")  # noqa: S106 - a value
    assert (told.internal_token, told.internal_token_file) == ("told", "")


def test_where_the_token_of_vault_lies_is_known_so_that_it_can_be_read_again(tmp_path):
    file = tmp_path / "token"
    file.write_text("hvs\n", encoding="utf-8")
    found = server(VAULT_TOKEN_FILE=str(file))
    assert (found.vault_token, found.vault_token_file) == ("hvs", str(file))
    assert (found.shown()["vault_token"], found.shown()["vault_token_file"]) == ("***", str(file))


def test_a_process_of_ours_is_given_settings_and_what_an_interpreter_needs():
    given = {"PATH": "/bin", "HOME": "/h", "NOETL_PORT": "1", "NOETL_TOKEN_FILE": "f", "AWS": "x"}

    assert process_environment(given) == {
        "PATH": "/bin",
        "HOME": "/h",
        "NOETL_PORT": "1",
        "NOETL_TOKEN_FILE": "f",
        "LANG": "C.UTF-8",
    }


def test_a_process_of_ours_is_given_the_variables_that_are_credentials():
    given = {"NOETL_KEYCHAIN_ENV_VARS": "MAIL_KEY, NONE", "MAIL_KEY": "k", "OTHER": "x"}

    assert lifted_names(given) == {"MAIL_KEY", "NONE"}
    assert process_environment(given)["MAIL_KEY"] == "k"
    assert "OTHER" not in process_environment(given)


def test_a_watcher_belongs_to_no_pool_and_needs_the_internal_token() -> None:
    with pytest.raises(BadSetting, match="no token"):
        WorkerSettings.read({}, mode="watcher")
    told = {"NOETL_INTERNAL_API_TOKEN": "t-watcher-3312", "WORKER_MODE": "watcher"}
    made = WorkerSettings.read(told, namespaces="research")
    assert (made.mode, made.pool, made.namespaces) == ("watcher", "", ("research",))
