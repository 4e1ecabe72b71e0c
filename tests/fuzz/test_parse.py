"""Whatever the bytes, the parser answers with a model or diagnostics, never with another exception.

20,000 cases in all; a failure prints the blob that replays it.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.dsl.codes import CODES
from noetl.dsl.explain import model_of
from noetl.dsl.parse import KINDS, parse
from noetl.dsl.shape import Fields
from tests.fuzz.mutation import corpus, mutate

SEEDS = corpus()
CASES = settings(
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
pytestmark = pytest.mark.timeout(300)


def answered(source: str | bytes) -> None:
    parsed = parse(source)
    assert (parsed.model is None) == bool(parsed.errors)
    for item in parsed.diagnostics:
        assert item.code in CODES
        assert item.span.line >= 1
        assert item.span.column >= 1
        assert item.message


@CASES
@given(st.binary(max_size=400) | st.text(max_size=400))
def test_any_bytes_are_answered(source: str | bytes) -> None:
    answered(source)


@settings(CASES, max_examples=10_000)
@given(st.integers(0, 2**32))
def test_a_damaged_document_is_answered(seed: int) -> None:
    chance = random.Random(seed)
    answered(mutate(chance.choice(SEEDS), chance, SEEDS))


def words() -> list[str]:
    """Keys and values that mean something somewhere in the language."""
    found = {"kind", "start", "end", "{{ a }}", "{{ a", "x-y", "call.done", "5m", "1Gi", "true"}
    for kind in KINDS.values():
        found |= {kind.name, *kind.versions, *Fields.of(kind.model).by_name}
    playbook = KINDS["playbook"].model
    waiting, seen = [playbook], {playbook}
    while waiting:
        for item in Fields.of(waiting.pop()).keys.values():
            found.add(item.name)
            inner = model_of(item.shape)
            if inner is not None and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    return sorted(found)


SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(words()) | st.text(max_size=12)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(words()) | st.text(max_size=6), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(CASES, max_examples=1_500)
@given(
    st.sampled_from(sorted(kind.name for kind in KINDS.values())),
    st.dictionaries(st.sampled_from(words()), VALUES, max_size=6),
    st.lists(st.dictionaries(st.sampled_from(words()), VALUES, max_size=6), max_size=4),
)
def test_a_document_of_known_words_in_wrong_places_is_answered(
    kind: str, body: dict[str, Any], steps: list[dict[str, Any]]
) -> None:
    document = {
        "apiVersion": "noetl.io/v2",
        "metadata": {"name": "a"},
        "workflow": steps,
        "spec": body,
    }
    answered(json.dumps(document | body | {"kind": kind}, ensure_ascii=False))
