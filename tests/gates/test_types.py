import pytest


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def double(x):\n    return x * 2\n", "no-untyped-def"),
        ("def double(x: list) -> int:\n    return len(x)\n", "type-arg"),
        ("x: int = 1  # type: ignore[misc]\n", "unused-ignore"),
        ("x: int = 'a'  # type: ignore\n", "ignore-without-code"),
    ],
)
def test_a_planted_type_hole_is_found(run, root, tmp_path, code, error):
    planted = tmp_path / "planted.py"
    planted.write_text(code, encoding="utf-8")

    exit_code, output = run(
        "mypy",
        f"--config-file={root / 'pyproject.toml'}",
        f"--cache-dir={root / '.cache' / 'gates'}",
        planted,
    )

    assert exit_code == 1
    assert f"[{error}]" in output


def test_the_product_and_the_view_of_its_users_are_checked(config):
    assert config["tool"]["mypy"]["strict"] is True
    assert {"src", "tests/typing"} <= set(config["tool"]["mypy"]["files"])
