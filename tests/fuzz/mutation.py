"""Damages documents: cuts, repeats, swaps and inserts pieces, the same way for the same seed."""

import random
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PIECES = [
    "\n", "  ", "\t", ": ", "- ", "? ", "&a ", "*a", "<<: *a", "!!python/name:x ", "|\n", ">-\n",
    "{{ ", " }}", "{% ", " %}", "{# ", "[", "]", "{", "}", '"', "'", "#", "%", "@", "\\", "\x00",
    "\ud800", "\u2028", "\ufeff", "---\n", "...\n", "1e999", "0x", ".nan", "~", "9" * 400,
    "a" * 5000, "[" * 100, "step", "tool", "kind: Playbook\n", "loop", "next", "when", "${x}", "5m",
]  # fmt: skip


def corpus() -> list[str]:
    """Documents to start from: every YAML file of the tests and examples."""
    folders = (ROOT / "tests", ROOT / "examples")
    paths = sorted(path for folder in folders for path in folder.rglob("*.yaml"))
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths] or ["a: 1\n"]


def mutate(text: str, chance: random.Random, others: list[str]) -> str:
    """Break a document in one to eight places."""
    for _ in range(chance.randint(1, 8)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice([0, 1, 5, 80]))
        other = chance.choice(others)
        cut = chance.randint(0, len(other))
        middle = chance.choice(
            [
                "",
                chance.choice(PIECES),
                chance.choice(PIECES) * chance.choice([2, 70]),
                text[start:end] * 2,
                other[cut : cut + 200],
                chr(chance.choice([chance.randint(0, 0x7F), chance.randint(0, 0x10FFFF)])),
            ]
        )
        text = text[:start] + middle + text[end:]
    return text
