import json
import socket

import pytest

from noetl.cli.checkup import clock


def test_a_machine_without_a_stack_is_looked_at(noetl):
    code, out, _ = noetl("doctor", "-o", "json")
    found = {item["name"]: item for item in json.loads(out)["items"]}

    assert code == 0
    assert found["python"]["verdict"] == found["packages"]["verdict"] == "ok"
    assert {found[name]["verdict"] for name in ("stack", "database", "bus")} == {"warn"}
    assert found["stack"]["fix"] == "noetl up"
    assert set(found) >= {"disk", "extras", "sandbox", "ports"}


def test_what_fails_has_a_fix_and_ends_with_1(noetl, monkeypatch):
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgresql://127.0.0.1:1/x")
    monkeypatch.setenv("NOETL_NATS_URL", "nats://127.0.0.1:1")
    code, out, err = noetl("doctor")

    assert code == 1
    assert "database" in out
    assert err.startswith("error[check_failed]: not well: database, bus\n")
    told = json.loads(noetl("doctor", "-o", "json").err)["error"]
    failed = [one for one in told["details"]["items"] if one["verdict"] == "fail"]
    assert [one["name"] for one in failed] == ["database", "bus"]
    assert all(one["fix"] for one in failed)


def test_a_taken_port_is_told(noetl):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8082))
        except OSError:
            pytest.skip("another process of this machine has it")
        taken.listen()
        found = {i["name"]: i for i in json.loads(noetl("doctor", "--json").out)["items"]}

    assert found["ports"]["verdict"] == "warn"
    assert found["ports"]["fix"] == "noetl up --port auto"


@pytest.mark.parametrize(("ms", "verdict"), [(20, "ok"), (-900, "warn"), (6000, "fail")])
def test_clocks_that_are_apart_matter(ms, verdict):
    assert clock(ms).verdict == verdict
    assert bool(clock(ms).fix) is (verdict != "ok")
