import pytest


@pytest.mark.parametrize(
    "message",
    [
        "feat(dsl): read playbooks",
        "fix: a typo\n\nIt was wrong.",
        "feat(cli)!: new exit codes\n# comment of git\n",
    ],
)
def test_a_good_message_passes(run, root, tmp_path, message):
    assert _check(run, root, tmp_path, message) == (0, "")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("", "the subject is not"),
        ("Read playbooks", "the subject is not"),
        ("feature(dsl): x", "unknown type 'feature'"),
        ("feat(nowhere): x", "unknown scope 'nowhere'"),
        ("feat(dsl): x.", "ends with a full stop"),
        ("feat(dsl): x\ny", "the second line is not blank"),
        (f"feat(dsl): {'x' * 100}", "111 characters"),
    ],
)
def test_a_bad_message_is_refused_with_its_reason(run, root, tmp_path, message, said):
    exit_code, output = _check(run, root, tmp_path, message)

    assert exit_code == 1
    assert said in output


def _check(run, root, tmp_path, message):
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(message, encoding="utf-8")
    return run("python", root / "scripts" / "commit_message.py", path)
