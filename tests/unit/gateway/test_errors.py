"""What an error is called on each way out."""

from __future__ import annotations

import pytest

from noetl.api.codes import PROBLEMS
from noetl.api.http import NoAnswer
from noetl.api.problems import Problem, Refused
from noetl.bus.base import BusGone
from noetl.edge.errors import Conflict, Forbidden, NotFound, RateLimited, TooLarge, Unacceptable
from noetl.gateway import errors
from noetl.gateway.errors import graphql_code_of, rpc_of, told


def refused(status, code, **more):
    problem = Problem(type="t", title="T", status=status, code=code, detail="of the server", **more)
    return Refused(problem)


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (Unacceptable("x"), -32602, "BAD_USER_INPUT"),
        (errors.MissingToken("x"), -32002, "UNAUTHENTICATED"),
        (errors.InvalidSession("x"), -32002, "UNAUTHENTICATED"),
        (Forbidden("x"), -32003, "FORBIDDEN"),
        (errors.ClientNotYours("x"), -32003, "FORBIDDEN"),
        (NotFound("x"), -32008, "NOT_FOUND"),
        (errors.UnknownRequest("x"), -32008, "NOT_FOUND"),
        (Conflict("x", code="dedup_conflict"), -32602, "CONFLICT"),
        (TooLarge("x"), -32006, "LIMIT_EXCEEDED"),
        (RateLimited("x", retry_after=3), -32005, "RATE_LIMITED"),
        (errors.TooManyClients("x"), -32005, "RATE_LIMITED"),
        (errors.UpstreamUnavailable("x"), -32007, "UPSTREAM"),
        (errors.UpstreamUnreachable("x"), -32007, "UPSTREAM"),
        (errors.UpstreamTimeout("x"), -32007, "UPSTREAM"),
        (NoAnswer("x"), -32007, "UPSTREAM"),
        (BusGone("x"), -32007, "UPSTREAM"),
        (refused(403, "forbidden"), -32003, "FORBIDDEN"),
        (refused(404, "unknown_path"), -32008, "NOT_FOUND"),
        (refused(422, "invalid_input"), -32602, "BAD_USER_INPUT"),
        (refused(429, "rate_limited"), -32005, "RATE_LIMITED"),
        (refused(503, "db_unavailable"), -32007, "UPSTREAM"),
        (refused(500, "internal"), -32603, "UPSTREAM"),
        (refused(502, "bad_answer"), -32007, "UPSTREAM"),
        (refused(401, "bad_identity"), -32007, "UPSTREAM"),
        (refused(401, "session_expired"), -32002, "UNAUTHENTICATED"),
        (ValueError("select * from users"), -32603, "UPSTREAM"),
    ],
    ids=lambda value: getattr(value, "code", type(value).__name__) if isinstance(value, Exception)
    else str(value),
)  # fmt: skip
def test_each_error_has_a_code_on_each_way(error, code, word):
    assert (rpc_of(error).code, graphql_code_of(error)) == (code, word)


def test_whoever_may_try_again_is_told_when_and_which_run_it_may_be():
    failure = rpc_of(errors.UpstreamUnavailable("x", execution_id="17", retry_after=2))
    assert failure.data == {
        "code": "upstream_unavailable", "retryAfter": 2, "executionId": "17",
    }  # fmt: skip
    assert rpc_of(RateLimited("x", retry_after=3)).data["retryAfter"] == 3


def test_what_is_no_business_of_callers_is_not_told():
    for error in (
        ValueError("select secret from wallet"),
        refused(500, "internal"),
        refused(502, "bad_answer"),
        NoAnswer("http://10.0.0.7:8082 refused"),
    ):
        text = str(rpc_of(error)) + str(told(error))
        assert "10.0.0.7" not in text
        assert "of the server" not in str(rpc_of(error).message)
        assert "select" not in str(rpc_of(error).message)


def test_places_of_a_refusal_are_kept():
    places = ({"pointer": "/workload/x", "code": "invalid_input"},)
    seen = told(refused(422, "invalid_input", errors=places))
    assert (seen.status, seen.errors) == (422, places)
    assert rpc_of(seen).data["errors"] == list(places)


def test_every_code_of_the_gateway_is_in_the_table_with_its_status():
    found = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and one.__module__ == errors.__name__ and "code" in vars(one)
    ]
    assert len(found) > 15
    assert [one for one in found if PROBLEMS[one.code].status != one.status] == []
