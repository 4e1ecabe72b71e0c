import pytest

WORDS = ("worker", "--mode", "subscription", "--print-settings", "-o", "json")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("subscribe",), 2, "FILE"),
        (("subscribe", "none.yaml"), 5, "none.yaml"),
        (("subscribe", "hello.yaml"), 2, "is of kind playbook"),
        (("subscribe", "hello.yaml", "--dispatch", "cloud"), 2, "--dispatch cloud"),
        (("subscribe", "hello.yaml", "--max-messages", "0"), 2, "--max-messages"),
    ],
)
@pytest.mark.usefixtures("hello")
def test_what_cannot_be_listened_for_is_refused(noetl, words, code, said):
    found = noetl(*words)
    assert (found.code, said.lower() in found.err.lower()) == (code, True), found.err


def test_a_listener_is_told_what_it_listens_for(noetl):
    shown = noetl(*WORDS, "--subscription", "a/b", "--subscription", "c")
    assert shown.code == 0, shown.err
    assert '"paths": [\n    "a/b",\n    "c"\n  ]' in shown.out
    assert noetl("worker", "--subscription", "a/b", "--print-settings").code == 0
    none = noetl(*WORDS)
    assert (none.code, "--subscription PATH" in none.err) == (2, True)
