"""Names of the platform, and how names are spelt."""

import pytest

from noetl.tools.base import ToolContext, ToolError
from noetl.tools.nats.places import bucket_of, key_of, pattern_of, stream_of, subject_of


def ctx(pool=""):
    return ToolContext(execution_id="1", step="s", command_id="c", idempotency_key="k", pool=pool)


OURS = [
    (bucket_of, "sessions"),
    (bucket_of, "requests"),
    (bucket_of, "circuits"),
    (bucket_of, "noetl_spool"),
    (bucket_of, "NOETL_BUCKET"),
    (stream_of, "NOETL_COMMANDS"),
    (stream_of, "NOETL_ANYTHING"),
    (stream_of, "KV_sessions"),
    (stream_of, "OBJ_noetl_spool"),
    (subject_of, "noetl.commands.shared.1"),
    (subject_of, "$JS.API.STREAM.DELETE.NOETL_COMMANDS"),
    (subject_of, "$JS.ACK.NOETL_COMMANDS.c.1.1.1.1.1"),
    (subject_of, "$SYS.REQ.SERVER.PING"),
    (subject_of, "$KV.sessions.abc"),
    (subject_of, "$O.noetl_spool.C.x"),
]


@pytest.mark.parametrize(("read", "name"), OURS)
def test_what_is_the_platforms_is_refused_outside_the_system_pool(read, name):
    for pool in ("", "shared", "systems"):
        with pytest.raises(ToolError) as refusal:
            read(name, ctx(pool))
        assert (refusal.value.kind, refusal.value.code) == ("auth", "platform_resource")
    assert read(name, ctx("system")) == name


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (bucket_of, "a.b"), (bucket_of, ""), (bucket_of, None), (stream_of, "a.*"),
        (stream_of, "a b"), (stream_of, ">"), (subject_of, "a.>"), (subject_of, "a..b"),
        (subject_of, "a b"), (subject_of, "a\r\nPUB x 0"), (subject_of, ".a"),
    ],
)  # fmt: skip
def test_a_name_that_could_mean_something_else_is_refused(read, name):
    with pytest.raises(ToolError, match=r"^/"):
        read(name, ctx("system"))


def test_names_of_users_pass():
    assert bucket_of("devices", ctx()) == "devices"
    assert stream_of("PLANT", ctx()) == "PLANT"
    assert subject_of("plant.events", ctx()) == "plant.events"
    assert subject_of("$KV.devices.k", ctx()) == "$KV.devices.k"


@pytest.mark.parametrize("key", ["", ".a", "a.", "a b", "a*", ">"])
def test_a_key_that_no_broker_takes_is_refused(key):
    with pytest.raises(ToolError):
        key_of(key)


@pytest.mark.parametrize(
    ("pattern", "asked", "is_in", "is_not"),
    [
        (None, ">", "a.b", ""),
        ("d-*", "*", "d-17", "e-17"),
        ("a.*.c", "a.*.c", "a.b.c", "a.b.d"),
        ("a.>", "a.>", "a.b.c", "b"),
    ],
)
def test_a_pattern_is_asked_in_whole_words_and_sifted(pattern, asked, is_in, is_not):
    found, sifted = pattern_of(pattern)
    assert found == asked
    assert sifted.fullmatch(is_in)
    assert not sifted.fullmatch(is_not)
