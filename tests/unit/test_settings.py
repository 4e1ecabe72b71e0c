import dataclasses

import pytest

from noetl.settings import SETTINGS, CliSettings, child_environment, variable, warnings


def test_an_empty_environment_gives_the_defaults():
    assert CliSettings.read({}) == CliSettings(
        output="table", no_color=False, term="", columns=None
    )


def test_every_name_reaches_its_field():
    environ = {"NOETL_OUTPUT": "json", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}

    assert CliSettings.read(environ) == CliSettings(
        output="json", no_color=True, term="xterm", columns=80
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


def test_an_unknown_name_is_a_warning_with_the_nearest_known_one():
    assert warnings({"NOETL_OUPTUT": "json"}) == [
        "NOETL_OUPTUT is not a setting of NoETL; did you mean NOETL_OUTPUT?"
    ]


def test_an_unknown_name_that_is_near_to_nothing_lists_the_known_ones():
    assert warnings({"NOETL_ZZZ": "1"}) == [
        "NOETL_ZZZ is not a setting of NoETL; known names: NOETL_OUTPUT."
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
    assert [s.name for s in SETTINGS if not s.meaning.endswith(".") or not s.processes] == []


def test_children_get_three_names_of_the_environment_and_no_more():
    given = {"PATH": "/bin", "LANG": "de_CH.UTF-8", "TZ": "UTC", "TOKEN": "secret"}

    assert child_environment(given) == {"PATH": "/bin", "LANG": "de_CH.UTF-8", "TZ": "UTC"}
    assert child_environment({}).keys() == {"PATH", "LANG"}


def test_a_variable_is_read_by_the_name_that_the_caller_gives():
    assert (variable("A", {"A": "1"}), variable("B", {"A": "1"})) == ("1", None)
