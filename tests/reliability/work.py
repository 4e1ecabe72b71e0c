"""What runs while parts are killed: playbooks whose steps write to the ledger, and their models."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import indent

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: NAME, path: faults/NAME}\n"


@dataclass(frozen=True)
class Work:
    """A playbook, and what must come of it."""

    name: str
    text: str
    result: object
    effects: list = field(default_factory=list)
    """What ledger A must hold, sorted."""
    commands: int = 0
    """How many commands are completed, when it is not one for each effect."""
    child: Work | None = None
    """What the one run that it starts must come to."""
    payload: dict = field(default_factory=dict)

    @property
    def path(self):
        return f"faults/{self.name}"


def _call(step, n, more="", how=""):
    body = f'{{step: {step}, n: "{n}"{more}}}'
    address = '"{{ workload.url }}"'
    return f"{{kind: http, method: POST, url: {address}, json: {body}, timeout: 60{how}}}"


def chain(length=20):
    """Steps that each add one to what the step before gave."""
    lines = [HEAD.replace("NAME", "chain"), "workflow:\n"]
    for at in range(length):
        before = f"{{{{ s{at - 1}.data.value }}}}" if at else "{{ 0 }}"
        name = f"s{at}" if at else "start"
        before = before.replace("s0.", "start.")
        lines += [f"  - step: {name}\n", f"    tool: {_call(name, before)}\n"]
        if at + 1 < length:
            lines.append(f"    next: {{arcs: [{{step: s{at + 1}}}]}}\n")
    effects = sorted(("start" if at == 0 else f"s{at}", at) for at in range(length))
    last = f"s{length - 1}" if length > 1 else "start"
    lines.append(f'result: "{{{{ {last}.data.value }}}}"\n')
    return Work("chain", "".join(lines), length, effects)


def fanout(count=200, in_flight=16, name="fanout"):
    """Many items side by side."""
    text = (
        f"{HEAD.replace('NAME', name)}workflow:\n  - step: start\n"
        f"    loop: {{in: {count}, iterator: n,"
        f" spec: {{mode: parallel, max_in_flight: {in_flight}}}}}\n"
        f"    tool: {_call('start', '{{ iter.n }}')}\n"
        "result: \"{{ start | map(attribute='data') | list }}\"\n"
    )
    result = [{"value": at + 1} for at in range(count)]
    return Work(name, text, result, [("start", at) for at in range(count)])


def leaf(n=0):
    """One step, for another run to start."""
    text = (
        f"{HEAD.replace('NAME', 'leaf')}workflow:\n  - step: start\n"
        f"    tool: {_call('start', '{{ workload.n }}')}\n"
        'result: "{{ start.data.value }}"\n'
    )
    return Work("leaf", text, n + 1, [("start", n)], payload={"n": n})


ITEMS, ANSWER, PAUSE_S = 3, 7, 0.2
RETRY = ", spec: {retry: {attempts: 3, delay: 300ms}}"
TOUR = f"""
workflow:
  - step: start
    tool: {_call("start", "{{ workload.n }}")}
    next:
      spec: {{mode: exclusive}}
      arcs: [{{step: odd, when: "{{{{ workload.n % 2 }}}}"}}, {{step: even}}]
  - step: odd
    tool: {_call("odd", "{{ start.data.value }}")}
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: left}}, {{step: right}}]}}
  - step: even
    tool: {_call("even", "{{ start.data.value }}")}
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: left}}, {{step: right}}]}}
  - step: left
    tool: {_call("left", "{{ start.data.value + 1 }}")}
    next: {{arcs: [{{step: both}}]}}
  - step: right
    tool: {_call("right", "{{ start.data.value + 10 }}")}
    next: {{arcs: [{{step: both}}]}}
  - step: both
    tool: {_call("both", "{{ left.data.value + right.data.value }}")}
    next: {{arcs: [{{step: each}}]}}
  - step: each
    loop: {{in: {ITEMS}, iterator: n, spec: {{mode: parallel, max_in_flight: {ITEMS}}}}}
    tool: {_call("each", "{{ iter.n }}")}
    next: {{arcs: [{{step: flaky}}]}}
  - step: flaky
    tool: {_call("flaky", "{{ both.data.value }}", ", fails: 1", RETRY)}
    next: {{arcs: [{{step: pause}}]}}
  - step: pause
    tool: {{kind: wait, seconds: {PAUSE_S}}}
    next: {{arcs: [{{step: below}}]}}
  - step: below
    tool:
      kind: playbook
      path: faults/leaf
      input: {{url: "{{{{ workload.url }}}}", n: "{{{{ flaky.data.value }}}}"}}
    next: {{arcs: [{{step: ask}}]}}
  - step: ask
    tool: {{kind: wait, callback: true, timeout: 1h}}
    next: {{arcs: [{{step: add}}]}}
  - step: add
    tool:
      kind: python
      input: {{below: "{{{{ below }}}}", answer: "{{{{ ask.n }}}}"}}
      code: |
        result = {{"sum": below + answer}}
    next: {{arcs: [{{step: last}}]}}
  - step: last
    tool: {_call("last", "{{ add.sum }}")}
result: "{{{{ last.data.value }}}}"
"""


def tour(n=0):
    """A branch, a join, a loop, a retry, a timer, a child and a callback, in a dozen steps."""
    begun, both = n + 1, (n + 3) + (n + 12)
    below = leaf(both + 2)
    last = below.result + ANSWER
    effects = [
        ("start", n), ("odd" if n % 2 else "even", begun), ("left", begun + 1),
        ("right", begun + 10), ("both", both), ("flaky", both + 1), ("last", last),
        *(("each", at) for at in range(ITEMS)),
    ]  # fmt: skip
    text = HEAD.replace("NAME", "tour") + TOUR.lstrip()
    without = ("pause", "below", "ask", "add")
    return Work(
        "tour", text, last + 1, sorted(effects), commands=len(effects) + len(without),
        child=below, payload={"n": n},
    )  # fmt: skip


def sleeper(mark):
    """A python step whose first attempt sleeps for ever, and whose next one ends at once."""
    code = (
        "import os, time\n"
        f"mark = {str(mark)!r}\n"
        "if not os.path.exists(mark):\n"
        "    with open(mark + '.new', 'w') as file:\n"
        "        file.write(str(os.getpid()))\n"
        "    os.rename(mark + '.new', mark)\n"
        "    time.sleep(600)\n"
        "result = 'awake'"
    )
    text = (
        f"{HEAD.replace('NAME', 'sleeper')}workflow:\n  - step: start\n"
        f"    tool:\n      kind: python\n      code: |\n{indent(code, '        ')}\n"
    )
    return Work("sleeper", text, "awake", [])
