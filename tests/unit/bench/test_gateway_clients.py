"""The clients of the gateway's load: frames by hand, and what is noted of a message."""

from __future__ import annotations

import json

import pytest

from bench.gateway_clients import RESULT, Client, framed, unframed
from bench.gateway_load import Load
from noetl.api.gateway import RequestDocument
from noetl.gateway import frames


def result(number: int) -> bytes:
    document = RequestDocument(
        request_id="r", execution_id="1", playbook_path="p", state="completed", created_at="",
        deadline="", result={"n": number, "at": 12.5, "text": ""},
    )  # fmt: skip
    return frames.result(document)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_of_a_server_is_read_when_it_is_whole(size):
    text = b"x" * size
    if size < 126:
        head = bytes([0x81, size])
    elif size < 65_536:
        head = bytes([0x81, 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x81, 127]) + size.to_bytes(8, "big")
    whole = head + text
    for cut in range(min(len(whole), 12)):
        assert unframed(whole[:cut]) is None
    assert unframed(whole + b"next") == (1, text, b"next")


def test_a_frame_of_a_client_is_masked():
    made = framed(1, b"hello")
    mask, text = made[2:6], made[6:]
    assert made[:2] == bytes([0x81, 0x85])
    assert bytes(byte ^ mask[at & 3] for at, byte in enumerate(text)) == b"hello"
    assert len(framed(1, b"x" * 300)) == 4 + 4 + 300


@pytest.mark.parametrize("text", [result(7), frames.with_id(result(7), "e-3")])
def test_a_result_is_found_in_the_message_of_either_transport(text):
    found = RESULT.search(text)
    assert found is not None
    assert (int(found[2]), float(found[3])) == (7, 12.5)


def test_what_is_told_twice_or_in_another_order_is_counted():
    client = Client("c", "t", "sse")
    for seq, number in ((1, 0), (2, 1), (2, 1), (5, 2)):
        client.note(b"e-%d" % seq, result(number), 13.0)
    assert client.disordered == 1
    assert client.last_id == b"e-5"
    assert [number for number, *_ in client.results] == [0, 1, 1, 2]


def test_what_was_missed_and_what_came_twice_is_told():
    sessions = [{"token": "t", "clients": [("a", "sse"), ("b", "ws")]}]
    load = Load({"host": "h", "port": 1, "sessions": sessions})
    first, second = load.clients
    load.requests = [("r0", [first, second]), ("r1", [first]), ("r2", [second])]
    load.count = 3
    first.results = [(0, 1.0, 1.002), (1, 1.0, 1.004), (1, 1.0, 1.004)]
    second.results = [(0, 1.0, 1.001), (1, 1.0, 1.001)]
    told = load.judged()
    names = ("results", "missed", "repeated", "unwanted")
    assert [told[name] for name in names] == [4, 1, 1, 1]
    assert [round(delay) for delay in load.delays((0, 1))] == [1]  # the first may be the stalled
    assert json.dumps(told)
