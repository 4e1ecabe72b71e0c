"""How large the product is: its wheel, and what a base install puts on the disk.

The wheel is built from the tree without a network. The install is what this environment holds of
the product's own requirements, without extras and without what only developers need.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.limits import at_most
from bench.sampling import record

if TYPE_CHECKING:
    from importlib.metadata import Distribution

ROOT: Final = Path(__file__).resolve().parents[1]
MOST_MB: Final = (12.0, 18.0)
PRODUCT: Final = "noetl"


def records_of() -> list[dict[str, Any]]:
    """Megabytes of the wheel, and of a base install."""
    wheel = wheel_mb()
    sizes = install_mb()
    largest = dict(sorted(sizes.items(), key=lambda item: -item[1])[:10])
    return [
        record(
            "footprint-wheel", [wheel], unit="MB", limits=[at_most("p50", *MOST_MB)],
            correct=wheel > 0, params={},
        ),
        record(
            "footprint-install", [sum(sizes.values())], unit="MB", correct=PRODUCT in sizes,
            params={}, packages=len(sizes), largest_mb=largest,
        ),
    ]  # fmt: skip


def wheel_mb() -> float:
    """The size of a wheel of this tree."""
    with tempfile.TemporaryDirectory(prefix="noetl-wheel-") as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(f"the wheel was not built: {done.stderr[-2000:]}")
        [wheel] = Path(folder).glob("*.whl")
        return wheel.stat().st_size / 1e6


def install_mb() -> dict[str, float]:
    """Megabytes of the product and of each package that it needs, as they lie here."""
    sizes: dict[str, float] = {}
    waiting = [(PRODUCT, frozenset[str]())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # not for this system
        sizes[name] = _source_mb() if name == PRODUCT else _size_mb(found)
        waiting += _needed(found, extras)
    return {name: round(size, 2) for name, size in sizes.items()}


def _needed(found: Distribution, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """What a package with these extras needs."""
    needed = []
    for line in found.requires or ():
        one = Requirement(line)
        if one.marker is None or any(
            one.marker.evaluate({"extra": extra}) for extra in (extras or {""})
        ):
            needed.append((canonicalize_name(one.name), frozenset(one.extras)))
    return needed


def _size_mb(found: Distribution) -> float:
    places = [Path(str(found.locate_file(file))) for file in found.files or ()]
    return sum(place.stat().st_size for place in places if place.is_file()) / 1e6


def _source_mb() -> float:
    """The product itself may be installed by a link to its tree."""
    files = (ROOT / "src" / PRODUCT).rglob("*")
    kept = [file for file in files if file.is_file() and "__pycache__" not in file.parts]
    return sum(file.stat().st_size for file in kept) / 1e6
