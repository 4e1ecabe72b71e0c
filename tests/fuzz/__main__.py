"""Throws broken text at everything that reads text: `python -m tests.fuzz --minutes 1 --seed 7`.

A target may answer or raise a NoetlError. Any other exception, and any answer that takes longer
than a second, is a finding; its input is kept under build/failures.
"""

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

from noetl.dsl.parse import parse
from noetl.dsl.template import compile_code, compile_template
from noetl.dsl.yaml import load
from noetl.errors import NoetlError
from tests.fuzz.mutation import corpus, mutate

ROOT = Path(__file__).resolve().parents[2]
SLOWEST_S = 1.0
MOST_FINDINGS = 10

TARGETS = {
    "yaml": load,
    "parse": parse,
    "template": compile_template,
    "code": compile_code,
}


def finding(target: str, text: str) -> str | None:
    """What is wrong with the way a target took the text, if anything."""
    started = time.perf_counter()
    try:
        TARGETS[target](text)
    except NoetlError:
        pass
    except Exception:  # noqa: BLE001 - any other exception is what we look for
        return traceback.format_exc()
    took = time.perf_counter() - started
    return f"took {took:.1f} s" if took > SLOWEST_S else None


def main() -> int:
    """Run until the time is over or enough is found."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"fuzz: seed {options.seed}", flush=True)

    chance = random.Random(options.seed)
    texts = corpus()
    folder = ROOT / "build" / "failures" / f"fuzz-{options.seed}"
    deadline = time.perf_counter() + options.minutes * 60
    tried = found = 0
    while time.perf_counter() < deadline and found < MOST_FINDINGS:
        text = mutate(chance.choice(texts), chance, texts)
        for target in TARGETS:
            tried += 1
            problem = finding(target, text)
            if problem:
                found += 1
                folder.mkdir(parents=True, exist_ok=True)
                kept = folder / f"{target}-{tried}.txt"
                kept.write_bytes(text.encode("utf-8", errors="surrogatepass"))
                print(f"fuzz: {target}: {kept.relative_to(ROOT)}\n{problem}", file=sys.stderr)
    print(f"fuzz: {tried} inputs, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
