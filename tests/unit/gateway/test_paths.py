"""Paths behind `/noetl/`: what they become at the server, and the tricks that are refused."""

import pytest

from noetl.edge.errors import NotFound
from noetl.gateway.errors import BadPath
from noetl.gateway.paths import MOST_BYTES, Target, target_of

GOOD = {
    "executions": Target("/api/executions"),
    "executions/": Target("/api/executions/"),
    "executions/42": Target("/api/executions/42", "42"),
    "executions/0042/events/stream": Target("/api/executions/0042/events/stream", "42"),
    "executions/bulk": Target("/api/executions/bulk"),
    "executions/99999999999999999999": Target("/api/executions/99999999999999999999"),
    "vars/7/name": Target("/api/vars/7/name", "7"),
    "result/-1/list": Target("/api/result/-1/list", "-1", 64 << 20),
    "result/resolve": Target("/api/result/resolve", None, 64 << 20),
    "plugins/a/b": Target("/api/plugins/a/b", None, 16 << 20),
    "events": Target("/api/events", has_events=True),
    "events/batch": Target("/api/events/batch", has_events=True),
    "events/batch/x": Target("/api/events/batch/x"),
    "execute": Target("/api/execute", is_start=True),
    "execute/batch": Target("/api/execute/batch", is_start=True),
    "run/playbook": Target("/api/run/playbook", is_start=True),
    "executions/7/rerun": Target("/api/executions/7/rerun", "7", is_start=True),
    "executions/rerun": Target("/api/executions/rerun"),
    "catalog/a%20b": Target("/api/catalog/a%20b"),
    "catalog/%C3%A9": Target("/api/catalog/%C3%A9"),
    "catalog/50%25": Target("/api/catalog/50%25"),
    "catalog/a%3Fb%23c": Target("/api/catalog/a%3Fb%23c"),
    "catalog/...": Target("/api/catalog/..."),
    "catalog/internal": Target("/api/catalog/internal"),
    "internally": Target("/api/internally"),
}
TRICKS = [
    "..", "../x", "a/..", "a/../internal/x", "a/./b", ".", "%2e%2e/x", "%2E%2e/x", ".%2e/x",
    "%2e/x", "a/%2e%2e/internal", "/x", "a//b", "a//", "//", "a\\b", "a%5cb", "a%5Cb", "..%5c",
    "a;b", "a%3bb", "a;/../b", "a%00b", "\0", "a%2fb", "a%2Fb", "%2f", "..%2finternal",
    "a%252fb", "a%252Fb", "%252e%252e/x", "a%25%32%66b", "a%5", "a%", "a%zz", "a%u002f",
    "%c0%ae%c0%ae/x", "%ff", "a\u00e9", "a%0d%0ab", "a%0a", "a%7f", "a%09b", "\uff0e\uff0e/x",
]  # fmt: skip
HIDDEN = ["internal", "internal/x", "internal/", "INTERNAL/x", "%69nternal/x", "Internal"]


@pytest.mark.parametrize("raw", GOOD)
def test_a_path_has_one_place_at_the_server(raw):
    assert target_of(raw) == GOOD[raw]


@pytest.mark.parametrize("raw", TRICKS, ids=lambda raw: ascii(raw).replace("\\", "/"))
def test_a_trick_is_a_bad_path(raw):
    with pytest.raises(BadPath) as caught:
        target_of(raw)
    assert (caught.value.status, caught.value.code) == (400, "bad_path")


@pytest.mark.parametrize("raw", ["", *HIDDEN])
def test_internal_routes_do_not_exist(raw):
    with pytest.raises(NotFound):
        target_of(raw)


def test_other_bodies_have_ten_mebibytes():
    assert target_of("catalog/register").most_bytes == MOST_BYTES == 10 << 20
