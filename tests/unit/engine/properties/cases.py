"""The properties P1 to P12 of the engine, each as a check of one seed."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.snapshot import dump, load
from noetl.engine.state import State
from tests.unit.engine.forking import snapshot_at
from tests.unit.engine.host import Host
from tests.unit.engine.properties.checks import check_all, summary
from tests.unit.engine.properties.generate import playbook
from tests.unit.engine.properties.schedule import Chaos, Run, same_tools, started, wild

if TYPE_CHECKING:
    from collections.abc import Callable


def wild_run(seed: int) -> Run:
    """Any playbook under any trouble."""
    return started(playbook(seed, is_tame=seed % 3 == 0), seed, "wild", wild(seed))


def any_log(seed: int) -> None:
    """P3 to P10, and P2 at the end."""
    check_all(wild_run(seed).to_the_end().host)


def every_position(seed: int) -> None:
    """P2: at every position the run's state is the fold of its log, byte for byte."""
    run = wild_run(seed)
    live: list[bytes] = []
    run.host.watch = lambda state: live.append(dump(state))
    host = run.to_the_end().host
    program = host.state.program
    state = fold(State(program=program), host.log[0])  # before anyone watched
    for item, seen in zip(host.log[1:], live, strict=True):
        fold(state, item)
        assert dump(state) == seen
        kept = load(program, seen)
        assert kept is not None
        assert dump(kept) == seen


def tame(seed: int) -> tuple[str, Chaos, Host]:
    """A tame playbook, its tools, and how it ends when nothing goes wrong."""
    body = playbook(seed, is_tame=True)
    chaos = Chaos(failing=random.Random(f"tame/{seed}").choice([0.0, 0.0, 0.1, 0.3]), in_order=True)
    return body, chaos, started(body, seed, "calm", chaos).to_the_end().host


def same_end(seed: int) -> None:
    """P1: any order, delay and repetition of reports, and any pause, ends alike."""
    body, chaos, calm = tame(seed)
    check_all(calm)
    for order in ("one", "two"):
        troubles = same_tools(chaos, twice=0.4, stale=0.2, pause=0.03)
        host = started(body, seed, order, troubles).to_the_end().host
        check_all(host)
        assert summary(host) == summary(calm)


def killed_workers(seed: int) -> None:
    """P11: a worker that dies at any point changes only the attempts."""
    body, chaos, calm = tame(seed)
    troubles = same_tools(chaos, lost=0.4, stale=0.2)
    host = started(body, seed, "killed", troubles).to_the_end().host
    check_all(host)
    assert summary(host) == summary(calm)


def forked(seed: int) -> None:
    """P12: a fork at any position reaches the same result."""
    body, chaos, calm = tame(seed)
    troubles = same_tools(chaos, twice=0.2, lost=0.1, pause=0.03)
    source = started(body, seed, "source", troubles).to_the_end().host
    chance = random.Random(f"fork/{seed}")
    for seq in chance.choices(range(1, len(source.log) + 1), k=2):
        snapshot = json.loads(json.dumps(snapshot_at(source.state.program, source.log, seq)))
        host = Host(body, forked_from={"execution_id": "1", "seq": seq})
        host.append(ev.StateRestored(source={"execution_id": "1"}, snapshot=snapshot))
        Run(host, seed, f"fork/{seq}", same_tools(chaos, twice=0.2)).to_the_end()
        assert summary(host) == summary(calm), seq


def any_order(seed: int) -> None:
    """The fold is total: the events of two runs of a playbook in any order never raise."""
    chance = random.Random(f"order/{seed}")
    body = playbook(seed, is_tame=False)
    host = started(body, seed, "wild", wild(seed)).to_the_end().host
    other = started(body, seed + 1, "other", wild(seed + 1)).to_the_end().host
    log = [item for item in [*host.log, *other.log] if not isinstance(item.event, ev.TERMINAL)]
    state = State(program=host.state.program)
    for item in [log[0], *chance.choices(log, k=len(log))]:
        fold(state, item)
    dump(state)


CHECKS: dict[str, Callable[[int], None]] = {
    check.__name__: check
    for check in (any_log, every_position, same_end, killed_workers, forked, any_order)
}
