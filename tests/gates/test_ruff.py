import re

import pytest

HEAD = '"""A module."""\n\n'

PLANTED = [
    ("src/noetl/dsl/x.py", 'import os\n\nHOME = os.getenv("HOME")\n', "TID251"),
    ("src/noetl/dsl/x.py", 'import os\n\nHOME = os.environ["HOME"]\n', "TID251"),
    ("src/noetl/cli/x.py", "from os import environ\n\nHOME = environ\n", "TID251"),
    (
        "src/noetl/dsl/x.py",
        "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n",
        "TID251",
    ),
    ("src/noetl/dsl/x.py", "import time\n\nNOW = time.time()\n", "TID251"),
    ("tests/unit/test_x.py", "import time\n\ntime.sleep(1)\n", "TID251"),
    ("src/noetl/dsl/x.py", "import uuid\n\nNAME = uuid.uuid4()\n", "TID251"),
    ("src/noetl/dsl/x.py", "try:\n    X = 1\nexcept Exception:\n    X = 2\n", "BLE001"),
    ("src/noetl/dsl/x.py", "try:\n    X = 1\nexcept:\n    X = 2\n", "E722"),
    (
        "src/noetl/cli/x.py",
        'STEP = "a"\nQUERY = f"select id from event where step = \'{STEP}\'"\n',
        "S608",
    ),
    ("src/noetl/dsl/x.py", "# X = compute(1)\n", "ERA001"),
    ("src/noetl/dsl/x.py", 'def show() -> None:\n    """Show."""\n    print(1)\n', "T201"),
    ("src/noetl/dsl/x.py", "def show() -> None:\n    return\n", "D103"),
]


@pytest.mark.parametrize(("name", "code", "rule"), PLANTED)
def test_a_planted_violation_is_found(run, name, code, rule):
    exit_code, output = _check(run, name, HEAD + code)

    assert exit_code == 1
    assert rule in _rules(output)


@pytest.mark.parametrize(
    ("statements", "rule"),
    [
        ("    if x > {i}:\n        x -= 1\n", "C901"),
        ("    if x > {i}:\n        x -= 1\n", "PLR0912"),
        ("    x += {i}\n", "PLR0915"),
    ],
)
def test_a_function_that_does_too_much_is_found(run, statements, rule):
    body = "".join(statements.format(i=i) for i in range(41))
    code = f'{HEAD}def count(x: int) -> int:\n    """Count."""\n{body}    return x\n'

    assert rule in _rules(_check(run, "src/noetl/dsl/x.py", code)[1])


def test_the_one_reader_of_the_environment_may_read_it(run):
    code = f'{HEAD}import os\n\nHOME = os.environ["HOME"]\n'

    assert _check(run, "src/noetl/settings/sources.py", code)[0] == 0


def test_every_ignore_carries_its_reason(root):
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    start = text.index("[tool.ruff.lint]")
    ignores = text[start : text.index("banned-api]", start)].splitlines()
    entries = [line for line in ignores if re.match(r'\s*"[A-Z]+\d*",|"src/.*\]', line)]

    assert entries
    assert [line for line in entries if "# " not in line] == []


def test_every_suppression_names_its_rule_and_gives_a_reason(root):
    mark = re.compile(r"#\s*(noqa|type:\s*ignore)\b(?P<rest>.*)")
    reasoned = re.compile(r"(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[a-z, -]+\])\s*[#:(-]*\s*\w+.*")
    bare = [
        f"{path.relative_to(root)}:{number}"
        for path in sorted((root / "src").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := mark.search(line)) and not reasoned.fullmatch(match["rest"].strip())
    ]

    assert bare == []


def _check(run, name, code):
    return run(
        "ruff", "check", "--no-cache", "--output-format=concise", f"--stdin-filename={name}", "-",
        text=code,
    )  # fmt: skip


def _rules(output):
    return set(re.findall(r"\b[A-Z]{1,4}\d{3,4}\b", output))
