"""The example `examples/etl`, typed as its page says: an API to PostgreSQL, DuckDB, Parquet."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ETL = ROOT / "examples" / "etl"
BIN = Path(sys.executable).parent
TOKEN = "demo-orders-token"  # noqa: S105 - of the example


@contextmanager
def api():
    """The API of the example, and its address."""
    words = [sys.executable, str(ETL / "orders_api.py"), "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture
def noetl(full_stack, tmp_path):
    full_stack.serve()
    env = {
        "PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(tmp_path),
        "NOETL_SERVER_URL": full_stack.url, "NOETL_TOKEN": full_stack.token,
    }  # fmt: skip

    def typed(*words, stdin=""):
        return subprocess.run(
            [str(BIN / "noetl"), *words], env=env, cwd=tmp_path, input=stdin, text=True,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    return typed


def test_the_example_loads_sums_keeps_and_reports(noetl, full_stack, postgres_url):
    kept = noetl(
        "credentials", "put", "etl_warehouse", "-t", "postgres", "--from-file", "-",
        stdin=postgres_url,
    )  # fmt: skip
    assert kept.returncode == 0, kept.stderr
    noetl("credentials", "put", "etl_api", "-t", "bearer", "--from-file", "-", stdin=TOKEN)
    tried = noetl("credentials", "test", "etl_warehouse", "-o", "json")
    assert json.loads(tried.stdout)["status"] == "COMPLETED", tried.stderr
    noetl("register", str(ETL))
    with api() as address:
        done = noetl(
            "exec", "examples/etl/load_orders", "--wait", "-o", "json", "--set", f"api={address}"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["orders"] == 500
    assert result["text"].splitlines()[:2] == ["500 orders", "east: 125 orders, 31437.50"]
    assert result["file"]["content_type"] == "application/vnd.apache.parquet"
    assert TOKEN not in done.stdout + done.stderr + "".join(full_stack.said.values())


def test_another_token_is_refused_and_nothing_is_loaded(noetl, postgres_url):
    noetl("credentials", "put", "etl_warehouse", "-t", "postgres", "--from-file", "-",
          stdin=postgres_url)  # fmt: skip
    noetl("credentials", "put", "etl_api", "-t", "bearer", "--from-file", "-", stdin=TOKEN)
    rotated = noetl("credentials", "rotate", "etl_api", "--from-file", "-", stdin="another-one")
    assert rotated.returncode == 0, rotated.stderr
    noetl("register", str(ETL))
    with api() as address:
        done = noetl(
            "exec", "examples/etl/load_orders", "--wait", "-o", "json", "--set", f"api={address}"
        )
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["step"]) == ("auth", "start")
