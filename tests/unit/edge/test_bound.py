"""The socket that is listened on."""

import socket

from noetl.edge.http import bound


def test_small_parts_of_answers_go_at_once():
    with bound("127.0.0.1", 0) as made:
        assert made.proto == socket.IPPROTO_TCP  # by which a loop knows that it may say so
