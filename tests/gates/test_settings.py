"""Every setting has a reader in each process that the table names, or is marked as having none."""

import dataclasses
import re

import pytest

from noetl.settings import (
    SETTINGS,
    GatewaySettings,
    ServerSettings,
    SubscriptionSettings,
    WorkerSettings,
)
from noetl.settings.table import FILES

MODELS = {
    "server": ServerSettings,
    "worker": WorkerSettings,
    "gateway": GatewaySettings,
    "subscription": SubscriptionSettings,
}
ANYWHERE = {"NOETL_CONFIG", "PATH", "LANG", "TZ"}
"""Read by what every process has: the reader of the file, and the environment of children."""
HARMLESS = {("gateway", "NOETL_SUBSCRIPTION_STATE_POLL_MS")}
"""A key that files of gateways may have: it is for whoever polls."""
ONE_VALUE = {"verify_signature"}
"""Refused when it is anything else, and so looked at nowhere."""


def fields(model):
    return [one for one in dataclasses.fields(model) if one.metadata]


def read_by(model):
    names = (one.metadata["setting"] for one in fields(model))
    return {FILES.get(name, name) for name in names}


def sources(root, *folders):
    """Everything that is written in these folders but the table and this file."""
    spared = {root / "src/noetl/settings/table.py", root / "tests/gates/test_settings.py"}
    files = (path for folder in folders for path in (root / folder).rglob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path not in spared)


@pytest.mark.parametrize("process", MODELS)
def test_a_process_reads_what_the_table_says_it_reads(process):
    told = {one.name for one in SETTINGS if one.is_read and process in one.processes} - ANYWHERE
    missing = told - read_by(MODELS[process])

    assert {(process, name) for name in missing} - HARMLESS == set()


def test_what_commands_and_tests_read_is_named_somewhere(root):
    text = sources(root, "src", "tests", "scripts")
    told = {one.name for one in SETTINGS if one.is_read and {"cli", "tests"} & {*one.processes}}

    assert sorted(name for name in told if f'"{name}"' not in text) == []


def test_what_is_marked_has_no_reader(root):
    text = sources(root, "src")
    marked = [one.name for one in SETTINGS if not one.is_read]

    assert marked != []
    assert [name for name in marked if f'"{name}"' in text] == []


@pytest.mark.parametrize("process", MODELS)
def test_what_a_process_reads_is_used(root, process):
    text = sources(root, "src")
    names = [one.name for one in fields(MODELS[process]) if one.name not in ONE_VALUE]

    assert [name for name in names if not re.search(rf"\.{name}\b", text)] == []
