import json

import pytest

from tests.unit.cli.runs import NOOP, register, start


def test_a_route_is_called_as_it_is(remote, served):
    run = start(served, "called/one", NOOP)
    code, out, err = remote("api", "get", f"/api/executions/{run}/status")

    assert (code, err) == (0, "200\n")
    assert json.loads(out)["execution_id"] == run


def test_fields_are_the_query_of_a_get_and_the_body_of_a_post(remote, served):
    register(served, "called/posted")
    listed = remote("api", "GET", "/api/executions?limit=1", "--field", "path=called/none")
    assert json.loads(listed.out)["items"] == []
    words = ("--field", "path=called/posted", "--field", "payload.n=7")
    started = json.loads(remote("api", "POST", "/api/execute", *words).out)
    found = json.loads(remote("executions", "get", started["execution_id"], "--json").out)
    assert found["workload"]["n"] == 7


def test_a_body_comes_from_a_file_or_stdin(remote, served, tmp_path):
    register(served, "called/file")
    (tmp_path / "body.json").write_text('{"path": "called/file"}')

    assert remote("api", "POST", "/api/execute", "--input", "body.json").code == 0
    done = remote("api", "POST", "/api/execute", "--input", "-", stdin=b'{"path": "called/file"}')
    assert done.code == 0


def test_pages_are_followed_to_the_end(remote, served):
    runs = [start(served, "called/paged", NOOP) for _ in range(3)]
    words = ("api", "GET", "/api/executions?limit=1&path=called/paged", "--paginate")
    found = json.loads(remote(*words, "-q").out)

    assert [item["execution_id"] for item in found["items"]] == runs[::-1]
    assert len(remote(*words, "-o", "jsonl").out.splitlines()) == 3
    code, _, err = remote("api", "GET", f"/api/executions/{runs[0]}/status", "--paginate")
    assert code == 2
    assert "answers no list of items" in err


def test_what_is_not_json_is_written_as_it_is(remote):
    assert remote("api", "GET", "/metrics").out.startswith("# HELP")


def test_a_problem_ends_like_everywhere(remote):
    code, out, err = remote("api", "GET", "/api/executions/77", "-o", "json")

    assert (code, out) == (5, "")
    assert json.loads(err)["error"]["code"] == "unknown_execution"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("FETCH", "/api/x"), "`FETCH` is no method"),
        (("GET", "http://elsewhere/api"), "is not the path of a route"),
        (("GET", "/api/é"), "is not the path of a route"),
        (("POST", "/api/x", "--field", "a=1", "--input", "f"), "exclude each other"),
        (("POST", "/api/x", "--paginate"), "only a GET has pages"),
    ],
)
def test_what_is_no_call_is_a_usage_error(noetl, words, said):
    code, _, err = noetl("api", *words)

    assert code == 2
    assert said in err


def test_the_gateway_knows_the_routes_under_its_own_name(noetl, served, monkeypatch):
    monkeypatch.setenv("NOETL_GATEWAY_URL", served.url)
    code, _, err = noetl("executions", "list", "--gateway", "-vv")

    assert code == 5
    assert "GET /noetl/executions?limit=50 404" in err


def test_the_gateway_is_where_its_setting_says(noetl, monkeypatch):
    monkeypatch.setenv("NOETL_GATEWAY_URL", "http://127.0.0.1:1")

    code, _, err = noetl("executions", "list", "--gateway")
    assert code == 10
    assert "http://127.0.0.1:1: " in err


def test_calls_are_told_without_bodies_and_tokens(remote, served):
    register(served, "called/quiet")
    words = ("api", "POST", "/api/execute", "--field", "path=called/quiet")
    err = remote(*words, "--session-token", "hidden-token", "-vv").err

    assert "POST /api/execute 200" in err
    assert "hidden-token" not in err
    assert "called/quiet" not in err
    assert "warning: the process list shows --session-token" in err
