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

    @property
    def path(self):
        return f"faults/{self.name}"


def _call(step, n):
    body = f'{{step: {step}, n: "{n}"}}'
    return f'{{kind: http, method: POST, url: "{{{{ workload.url }}}}", json: {body}, timeout: 60}}'


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
