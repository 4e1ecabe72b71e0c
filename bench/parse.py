"""Parse and check of a playbook of 200 and of 2,000 steps, all texts new each time."""

from __future__ import annotations

from typing import Any

from bench.sampling import record, timed
from noetl.dsl.parse import parse

_STEP = """\
  - step: s{i}
    desc: step {i} of the chain
    tool:
      kind: python
      input:
        n: "{{{{ workload.base{salt} + {i} }}}}"
        before: "{{{{ s{before}.n | default(0) }}}}"
      code: |
        result = {{"n": n + before}}
    set: {{ctx.last: "{{{{ output.data.n }}}}"}}
    next:
      arcs:
        - {{step: s{after}, when: "{{{{ output.data.n > {i} + {salt} }}}}"}}
        - {{step: end}}
"""


def playbook(steps: int, salt: int) -> str:
    """A chain of Python steps with four templates each; the salt makes its texts new."""
    head = (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: chain, path: bench/chain}\n"
        f"workload: {{base{salt}: 1}}\nworkflow:\n"
    )
    body = [
        _STEP.format(i=i, before=max(i - 1, 0), after=min(i + 1, steps - 1), salt=salt)
        for i in range(steps)
    ]
    return head + "".join(body)


def records(repeat: int) -> list[dict[str, Any]]:
    """Both sizes, and how far the larger is from linear."""
    medians: dict[int, float] = {}
    made = []
    for steps, limit in ((200, 60.0), (2_000, 700.0)):
        texts = [playbook(steps, salt) for salt in range(repeat + 1)]
        right = not parse(texts.pop()).diagnostics
        samples = timed(lambda texts=texts: parse(texts.pop()), repeat, scale=1_000)
        made.append(
            record(
                f"parse-{steps}",
                samples,
                unit="ms",
                limit=limit,
                correct=right,
                params={"steps": steps, "bytes": len(playbook(steps, 0))},
            )
        )
        medians[steps] = made[-1]["p50"]
    ratio = medians[2_000] / medians[200] / 10
    made.append(record("parse-linear", [ratio], unit="x of linear", limit=1.4))
    return made
