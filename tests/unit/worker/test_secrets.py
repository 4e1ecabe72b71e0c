import pytest

from noetl.api.http import NoAnswer
from noetl.dsl.tasks import Python
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolError
from noetl.worker import secrets as at
from noetl.worker.secrets import Asking, Secrets, lifted
from tests.unit.worker.fakes import HEAD, FakeServer, Scripted, Stage, play, refusal

KEPT = {
    ("credential", "pg"): {"type": "postgres", "data": {"host": "db", "password": "pw-7d1"}},
    ("keychain", "api"): {"type": "bearer", "data": {"token": "tok-7d2"}},
    ("inputs", "inputs"): {"user": "usr-7d3", "db/password": "pw-7d4"},
}


@pytest.fixture
def server():
    made = FakeServer()
    made.kept = dict(KEPT)
    return made


@pytest.fixture
def redactor():
    return Redactor()


def made(server, redactor, **more):
    async def register():
        server.entered.append("w-1")
        server.key = secrets.public

    secrets = Secrets(
        Asking(client=server, worker_id="w-1", redactor=redactor, register=register, **more)
    )
    return secrets


def command():
    return FakeServer().command()


async def test_a_credential_is_asked_for_once_per_command_and_its_secrets_are_covered(
    server, redactor
):
    secrets = made(server, redactor)
    own = secrets.of(command())

    assert await own.credential("pg") == KEPT["credential", "pg"]
    assert await own.credential("pg") == KEPT["credential", "pg"]
    assert len(server.asked) == 1
    assert redactor.redact("db says pw-7d1") == "db says ***"
    await secrets.of(command()).credential("pg")
    assert len(server.asked) == 2


async def test_the_key_is_made_when_it_is_needed_and_told_before_the_first_question(
    server, redactor
):
    secrets = made(server, redactor)
    assert secrets.public == ""

    await secrets.of(command()).credential("pg")

    assert (len(server.entered), len(server.asked)) == (1, 1)
    assert server.key == secrets.public != ""


async def test_a_server_that_forgot_the_key_is_told_again(server, redactor):
    secrets = made(server, redactor)
    secrets.make_key()

    assert (await secrets.of(command()).keychain({"api"}))["api"] == {"token": "tok-7d2"}
    assert (len(server.entered), len(server.asked)) == (1, 2)


async def test_what_there_is_not_is_left_out_or_not_found(server, redactor):
    own = made(server, redactor).of(command())

    assert await own.keychain(["api", "none"]) == {"api": {"token": "tok-7d2"}}
    with pytest.raises(LookupError):
        await own.credential("none")


async def test_every_secret_input_is_covered_whatever_its_name(server, redactor):
    found = await made(server, redactor).of(command()).inputs()

    assert found == {"user": "usr-7d3", "db/password": "pw-7d4"}
    assert redactor.redact("usr-7d3 pw-7d4") == "*** ***"


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "forbidden", "credential_forbidden"),
        (403, "residency_denied", "residency_denied"),
        (422, "secret_refused", "secret_refused"),
    ],
)
async def test_a_refusal_is_an_error_of_kind_auth(server, redactor, status, code, told):
    own = made(server, redactor).of(command())
    server.fail("sealed", refusal(status, code))

    with pytest.raises(ToolError) as caught:
        await own.credential("pg")
    assert (caught.value.kind, caught.value.code) == ("auth", told)


async def test_a_server_that_is_away_is_asked_again(server, redactor):
    own = made(server, redactor).of(command())
    server.fail("sealed", refusal(503, "kek_unavailable"), NoAnswer("gone"))

    assert await own.credential("pg") == KEPT["credential", "pg"]
    assert len(server.asked) == 3


@pytest.mark.parametrize("fault", [refusal(503, "kek_unavailable"), NoAnswer("gone")])
async def test_a_server_that_stays_away_is_told_before_the_tool_and_inside_it(
    server, redactor, monkeypatch, fault
):
    monkeypatch.setattr(at, "WITHIN_S", 0.0)
    own = made(server, redactor).of(command())
    server.fail("sealed", fault, fault)

    with pytest.raises(type(fault)):
        await own.ahead(["pg"])
    with pytest.raises(ToolError) as caught:
        await own.credential("pg")
    assert (caught.value.kind, caught.value.is_retryable) == ("server_error", True)


async def test_what_the_tool_will_be_refused_does_not_stop_it_before(server, redactor):
    own = made(server, redactor).of(command())
    server.fail("sealed", refusal(403, "forbidden"))

    await own.ahead(["pg", "none"])
    assert len(server.asked) == 2


def test_variables_are_credentials_in_the_system_pool_alone(monkeypatch):
    monkeypatch.setenv("H3_PAIR", '{"type": "basic", "username": "u", "password": "p-7d5"}')
    monkeypatch.setenv("H3_WORD", "word-7d6")
    names = ("H3_PAIR", "H3_WORD", "H3_NONE")

    assert lifted(names, "shared") == {}
    assert lifted(names, "system") == {
        "H3_PAIR": {"type": "basic", "data": {"username": "u", "password": "p-7d5"}},
        "H3_WORD": {"type": "secret", "data": {"value": "word-7d6"}},
    }


async def test_a_lifted_variable_needs_no_server_and_is_covered_from_the_start(server, redactor):
    known = {"WORD": {"type": "secret", "data": {"value": "word-7d7"}}}
    own = made(server, redactor, lifted=known).of(command())

    assert redactor.redact("word-7d7") == "***"
    assert await own.credential("WORD") == known["WORD"]
    assert await own.keychain(["WORD"]) == {"WORD": {"value": "word-7d7"}}
    await own.ahead(["WORD"])
    assert server.asked == []


async def test_an_entry_of_variables_has_the_fields_of_its_map(server, redactor):
    known = {
        "WORD": {"type": "secret", "data": {"value": "word-7d7"}},
        "PAIR": {"type": "basic", "data": {"username": "u", "password": "pw-7d8"}},
    }
    server.kept = {
        ("keychain", "both"): {
            "type": "secret",
            "data": {},
            "variables": {"w": "WORD", "p": "PAIR"},
        },
        ("keychain", "one"): {"type": "secret", "data": {}, "variables": {"w": "WORD"}},
        ("keychain", "far"): {"type": "secret", "data": {}, "variables": {"w": "OTHER"}},
        ("credential", "one"): {"type": "secret", "data": {}, "variables": {"w": "WORD"}},
    }
    own = made(server, redactor, lifted=known).of(command())

    assert await own.keychain(["both", "one"]) == {
        "both": {"w": "word-7d7", "p": {"username": "u", "password": "pw-7d8"}},
        "one": {"value": "word-7d7", "w": "word-7d7"},
    }
    assert await own.credential("one") == {
        "type": "secret", "data": {"value": "word-7d7", "w": "word-7d7"},
    }  # fmt: skip
    with pytest.raises(ToolError) as caught:
        await own.keychain(["far"])
    assert (caught.value.kind, caught.value.code) == ("auth", "credential_not_found")
    own.close()
    assert redactor.redact("OTHER WORD word-7d7") == "OTHER WORD ***"


NAMING = """\
- step: s
  tool:
    kind: python
    auth: pg
    input: {used: "{{ keychain.api.token }} {{ workload.user }}"}
    code: pass
"""
INPUTS = (
    HEAD
    + """\
inputs: {user: {type: string, secret: true}, city: {type: string}}
keychain: [{name: api, kind: static, map: {token: x}}]
workflow:
"""
)


class Code(Scripted):
    """A tool of kind `python` that does what a test says."""

    kind = "python"
    Config = Python


def ran(tool, kept=None, faults=(), **bound):
    """What a worker reported of one command, what it asked for, and what it gave back."""

    async def scene():
        server = FakeServer()
        server.content = INPUTS + NAMING
        server.kept = KEPT if kept is None else kept
        server.fail("sealed", *faults)
        server.offer(server.command(bindings={"workload": {"user": "***", **bound}}))
        async with Stage(server, tool):
            await server.until(lambda: server.ended or server.released)
        return server

    return play(scene)


def test_a_task_gets_what_it_names_and_the_report_shows_none_of_it():
    async def use(ctx):
        return [await ctx.secrets("pg"), ctx.pool]

    tool = Code(use)
    server = ran(tool)

    assert tool.contexts[0].input == {"used": "tok-7d2 usr-7d3"}
    assert sorted(server.asked) == [("credential", "pg"), ("inputs", "inputs"), ("keychain", "api")]
    result = server.ended[0].payload["result"]
    assert result == [{"type": "postgres", "data": {"host": "db", "password": "***"}}, "shared"]


def test_a_missing_entry_fails_the_task_before_its_tool_runs():
    tool = Code()
    server = ran(tool, kept={key: value for key, value in KEPT.items() if key[0] != "keychain"})

    assert server.ended[0].payload["error"]["code"] == "keychain_missing"
    assert tool.contexts == []


def test_a_secret_input_that_nobody_keeps_is_no_text_of_stars():
    tool = Code()
    server = ran(tool, kept={**KEPT, ("inputs", "inputs"): {}})

    error = server.ended[0].payload["error"]
    assert (error["kind"], error["code"]) == ("auth", "secret_missing")
    assert tool.contexts == []


def test_a_server_that_stays_away_gets_the_command_back():
    tool = Code()
    server = ran(tool, faults=[refusal(503, "kek_unavailable")] * 100)

    assert [body.reason for body in server.released] == ["unavailable"]
    assert (server.ended, tool.contexts) == ([], [])


def test_secret_inputs_that_no_template_names_stay_where_they_are():
    async def scene():
        server = FakeServer("- step: s\n  tool: {kind: noop, result: 1}\n")
        server.offer(server.command(bindings={"workload": {"city": "ZRH"}}))
        async with Stage(server, Scripted()):
            await server.finals()
        return server

    assert play(scene).asked == []
