"""Runs benchmarks: `python -m bench NAME|quick|all [--json FILE] [--repeat N]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from noetl import __version__

QUICK = ("parse", "render", "startup")
ALL = (*QUICK, "engine", "python_step", "local_run", "template_engines")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def run(name: str, repeat: int) -> list[dict[str, Any]]:
    """The records of one benchmark."""
    about = {
        "version": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a record of a real run
        "machine": machine(),
    }
    module = import_module(f"bench.{name}")
    return [about | record for record in module.records(repeat)]


def main() -> int:
    """Run what was asked for, print the records, and fail when one is over its floor."""
    arguments = argparse.ArgumentParser(prog="bench")
    arguments.add_argument("name", choices=[*ALL, "quick", "all"])
    arguments.add_argument("--json", type=Path, help="also write the records to this file")
    arguments.add_argument("--repeat", type=int, default=5)
    asked = arguments.parse_args()
    names = {"all": ALL, "quick": QUICK}.get(asked.name, (asked.name,))
    records = [record for name in names for record in run(name, asked.repeat)]
    text = json.dumps(records, indent=2)
    sys.stdout.write(text + "\n")
    if asked.json:
        asked.json.write_text(text + "\n")
    for record in records:
        verdict = "ok" if record["correct"] else "OVER THE LIMIT"
        limit = f" (limit {record['limit']})" if "limit" in record else ""
        figures = f"{record['p50']} {record['unit']}, best {record['best']}"
        sys.stderr.write(f"{record['name']}: {figures}{limit} {verdict}\n")
    return 0 if all(record["correct"] for record in records) else 1


if __name__ == "__main__":
    sys.exit(main())
