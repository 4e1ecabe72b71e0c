"""Which server is meant, and how every ending of a call becomes an exit code."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from noetl.cli.contexts import write_context
from noetl.cli.failures import CommandFailed
from noetl.cli.output import Output
from noetl.cli.remote import DEFAULT_URL, Target, target_of
from noetl.cli.where import Where
from noetl.local.embedded.home import Home
from noetl.local.embedded.identity import identity
from noetl.local.embedded.record import Stack, write
from noetl.settings import CliSettings

TOKEN = "ntk_a-very-secret-token"  # noqa: S105 - no real one
EMPTY = {"items": [], "next_cursor": None}


class Canned:
    """A server that says what it was told to say, and remembers what it was asked."""

    def __init__(self):
        self.answers = []
        self.asked = []
        canned = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                canned.asked.append((self.path, self.headers.get("Authorization")))
                status, body = canned.answers.pop(0) if canned.answers else (200, EMPTY)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def canned():
    server = Canned()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def problem(status, code="any_code", **more):
    return {"type": "t", "title": "t", "status": status, "code": code, "detail": "no", **more}


def listed(noetl, canned, *words):
    return noetl("executions", "list", "--server-url", canned.url, *words)


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, 4), (403, 4), (404, 5), (409, 6), (412, 6), (422, 7), (429, 11), (503, 11), (500, 1)],
)
def test_each_status_has_its_exit_code(noetl, canned, status, code):
    canned.answers = [(status, problem(status))] * 4

    assert listed(noetl, canned).code == code


def test_a_problem_of_the_server_becomes_the_error_object(noetl, canned):
    canned.answers = [
        (422, problem(422, "bad_time", hint="h", errors=[{"a": 1}], request_id="r-1"))
    ]
    code, out, err = listed(noetl, canned, "-o", "json")

    assert (code, out) == (7, "")
    assert json.loads(err) == {
        "error": {
            "code": "bad_time", "message": "no", "hint": "h",
            "docs_url": "/docs/reference/errors#bad_time", "status": 422, "request_id": "r-1",
            "details": {"diagnostics": [{"a": 1}]},
        }
    }  # fmt: skip


def test_what_a_busy_server_turned_away_is_asked_again(noetl, canned):
    canned.answers = [(429, problem(429)), (503, problem(503)), (200, EMPTY)]

    assert listed(noetl, canned, "-o", "json").code == 0
    assert len(canned.asked) == 3


def test_a_busy_server_is_left_alone_after_four_times(noetl, canned):
    canned.answers = [(429, problem(429, "rate_limited"))] * 9
    code, out, err = listed(noetl, canned)

    assert (code, out, len(canned.asked)) == (11, "", 4)
    assert err == "error[rate_limited]: no\nhint: wait a little, then try again\n"


def test_a_missing_token_is_explained(noetl, canned):
    canned.answers = [(401, problem(401, "auth_required"))]

    assert "--token-file" in listed(noetl, canned).err


def test_an_answer_of_something_else_is_told(noetl, canned):
    canned.answers = [(200, b"<html>hello</html>")]
    code, out, err = listed(noetl, canned)

    assert (code, out) == (1, "")
    assert err.startswith("error[bad_answer]: status 200: ")


def test_nobody_there_ends_with_10(noetl, canned):
    canned.http.server_close()
    code, out, err = listed(noetl, canned)

    assert (code, out) == (10, "")
    assert err.startswith(f"error[unreachable]: {canned.url}: no connection")
    assert json.loads(listed(noetl, canned, "--json").err)["error"]["code"] == "unreachable"


def test_no_token_is_told_even_with_vv(noetl, canned, tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    canned.answers = [(403, problem(403, "forbidden"))] * 2
    for words in ((), ("-o", "json")):
        code, out, err = listed(noetl, canned, "--token-file", "token", "-vv", *words)
        assert (code, out) == (4, "")
        assert TOKEN not in err
    assert canned.asked[0][1] == f"Bearer {TOKEN}"


def test_vv_tells_the_calls(noetl, canned):
    assert "GET /api/executions?limit=50 200 " in listed(noetl, canned, "-vv").err


def test_the_options_may_stand_before_the_command(noetl, canned):
    words = ("--server-url", canned.url, "-o", "json")

    assert noetl(*words, "executions", "list").code == 0
    assert noetl("executions", *words, "list").code == 0
    assert noetl(f"--server-url={canned.url}", "executions", "list", "-ojson").code == 0
    assert len(canned.asked) == 3


def test_other_commands_do_not_take_them(noetl, hello):
    code, _, err = noetl("validate", hello, "--server-url", "http://x")

    assert code == 2
    assert "there is no option `--server-url`" in err


# ----------------------------------------------------------------- which server is meant


def target(env=None, **where):
    out = Output(None, None, CliSettings.read(env or {}))
    out.is_quiet = True
    out.where = Where(**where)
    return target_of(out)


@pytest.fixture
def staging(tmp_path):
    (tmp_path / "staging").write_text("of-staging")
    write_context("staging", "https://staging", str(tmp_path / "staging"), make_current=True)


def test_the_default_is_the_local_port():
    assert target() == Target(url=DEFAULT_URL)


def test_a_host_and_a_port_make_an_address():
    assert target(host="h", port=1).url == "http://h:1"
    assert target(port=1).url == "http://127.0.0.1:1"
    assert target(host="::1").url == "http://[::1]:8082"


@pytest.mark.usefixtures("staging")
def test_an_option_wins_over_a_variable_over_a_context():
    env = {"NOETL_SERVER_URL": "http://variable/", "NOETL_TOKEN": "of-variable"}

    assert target() == Target(url="https://staging", token="of-staging")  # noqa: S106 - no real one
    assert target(env) == Target(url="http://variable", token="of-variable")  # noqa: S106 - as above
    assert target(env, server_url="http://o").url == "http://o"
    assert target(env, context="staging") == target()


def test_an_unknown_context_does_not_matter_when_the_server_is_named():
    assert target({"NOETL_CONTEXT": "nope"}, server_url="http://o").url == "http://o"
    with pytest.raises(CommandFailed, match="there is no context `nope`"):
        target({"NOETL_CONTEXT": "nope"})


@pytest.mark.usefixtures("staging")
def test_the_token_of_a_context_is_not_sent_to_another_server():
    assert target(server_url="https://other") == Target(url="https://other")
    assert target(server_url="https://staging/").token == "of-staging"  # noqa: S105 - as above


def test_a_token_comes_from_a_file_or_a_variable(tmp_path):
    (tmp_path / "t").write_text(" in-file \n")

    assert target(token_file="t").token == "in-file"  # noqa: S105, S106 - as above
    assert target({"NOETL_TOKEN_FILE": "t"}).token == "in-file"  # noqa: S105 - as above
    assert target({"NOETL_SESSION_TOKEN": "s"}).token == "s"  # noqa: S105 - as above
    assert target(session_token="o").token == "o"  # noqa: S105, S106 - as above


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"context": "nope"}, "context_not_found"),
        ({"token_file": "nope"}, "file_not_found"),
        ({"token_file": "."}, "file_unreadable"),
        ({"server_url": "ftp://x"}, "usage"),
        ({"server_url": "http://é"}, "usage"),
        ({"session_token": "hidden é"}, "usage"),
        ({"server_url": "http://x:99999"}, "usage"),
        ({"server_url": "http://user:hidden@x"}, "usage"),
    ],
)
def test_what_cannot_be_meant_is_refused(where, code):
    with pytest.raises(CommandFailed) as raised:
        target(**where)

    assert raised.value.code == code
    assert "hidden" not in raised.value.message


def test_the_stack_of_this_folder_is_meant_without_a_context(tmp_path):
    home = Home(tmp_path / "home")
    home.make()
    own = identity(os.getpid())
    write(
        home.record,
        Stack(
            version="1", home=str(home.path), state="ready", url="http://127.0.0.1:1234",
            pid=own.pid, started=own.started, started_at="", database_url_file="", nats_url="",
            token_file=str(home.keep("admin.token", "of-stack")),
        ),
    )  # fmt: skip

    found = target({"NOETL_HOME": str(home.path)})
    assert found == Target(url="http://127.0.0.1:1234", token="of-stack")  # noqa: S106 - as above
