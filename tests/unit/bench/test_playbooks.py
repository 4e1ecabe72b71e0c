import os

import pytest

from bench import playbooks
from bench.processes import cpu_s, pss_mib, rss_mib, trees
from noetl.dsl.parse import parse


@pytest.mark.parametrize(
    "text",
    [
        playbooks.chain("bench/chain", 40),
        playbooks.chain_http("bench/http", 40, "http://127.0.0.1:1/"),
        playbooks.fan_out("bench/fanout", 1_000, 100),
        playbooks.open_loop("bench/open", 500),
        playbooks.open_loop("bench/events", 20_000, 400),
        playbooks.passing("bench/large", 100, 5_000_000),
        playbooks.mixed("bench/mixed", "http://127.0.0.1:1/"),
        playbooks.cycle("bench/cycle", 10_000),
    ],
)
def test_what_is_measured_is_a_playbook_without_a_finding(text):
    assert parse(text).diagnostics == ()


def test_a_process_is_measured_with_its_children():
    found = trees({"me": os.getpid(), "parent": os.getppid()})
    assert os.getpid() in found["me"]
    assert os.getpid() not in found["parent"]
    assert cpu_s([os.getpid()]) > 0
    assert 0 < pss_mib(os.getpid()) <= rss_mib(os.getpid()) * 1.1
