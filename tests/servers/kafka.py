"""A Kafka cluster without Kafka: librdkafka's mock cluster in a process of its own.

Real clients of other processes speak to it over sockets: records, groups, commits, rebalances.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS = 3
PRODUCER = 0
HEARTBEAT = 12
REBALANCE = 27
"""What a member hears when its group is divided anew."""
LATE_S = 20


class KafkaCluster:
    """The cluster of a test process, and what its tests ask of it."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.kafka"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.brokers = self._heard()

    def topic(self, partitions: int = 1) -> str:
        """A topic that no other test has."""
        name = f"t{next(self._numbers)}"
        self._ask(f"topic {name} {partitions}")
        return name

    def down(self, broker: int) -> None:
        """Cut every connection of a broker, and let nobody in."""
        self._ask(f"down {broker}")

    def up(self, broker: int) -> None:
        """Let clients in again."""
        self._ask(f"up {broker}")

    def divide(self) -> None:
        """Have the member whose heart beats next join its group anew."""
        self._ask("divide")

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LATE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._heard() == "done", line

    def _heard(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster did not start"
        return line


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """The cluster of this test process, shared by its tests."""
    cluster = KafkaCluster()
    try:
        yield cluster
    finally:
        cluster.stop()


# ---------------------------------------------------------------------------- the other process


def _library() -> ctypes.CDLL:
    """The library that comes with the client of Confluent."""
    import confluent_kafka  # noqa: PLC0415 - loads what the library needs; of the child alone

    home = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    [found] = home.glob("librdkafka-*.so*")
    made = ctypes.CDLL(str(found))
    for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(made, name).restype = ctypes.c_void_p
    made.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return made


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until nobody speaks any more."""
    lib = _library()
    fault = ctypes.create_string_buffer(512)
    client = ctypes.c_void_p(lib.rd_kafka_new(PRODUCER, None, fault, len(fault)))
    cluster = ctypes.c_void_p(lib.rd_kafka_mock_cluster_new(client, BROKERS))
    lib.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 50)
    _say(lib.rd_kafka_mock_cluster_bootstraps(cluster).decode())
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "topic":
            failed = lib.rd_kafka_mock_topic_create(cluster, rest[0].encode(), int(rest[1]), 1)
        elif word == "down":
            failed = lib.rd_kafka_mock_broker_set_down(cluster, int(rest[0]))
        elif word == "up":
            failed = lib.rd_kafka_mock_broker_set_up(cluster, int(rest[0]))
        else:
            lib.rd_kafka_mock_push_request_errors(cluster, HEARTBEAT, ctypes.c_size_t(1), REBALANCE)
            failed = 0
        _say(f"failed {failed}" if failed else "done")


if __name__ == "__main__":
    main()
