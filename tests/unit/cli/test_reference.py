from noetl.cli.command import COMMANDS, every, load
from noetl.cli.failures import EXITS, FAILURES
from noetl.cli.reference import cli_reference


def test_the_page_holds_every_command_option_example_and_code():
    page = cli_reference()

    for name in COMMANDS:
        assert f"\n## noetl {name}\n" in page
        assert [text for text in load(name).spec.examples if text not in page] == []
    for name, command in every():
        options = [o for p in command.params for o in p.opts if o.startswith("-")]
        shared = [o for p in command.shared for o in p.opts]
        assert f"\n## noetl {name}\n" in page
        told = (*command.spec.examples, *options, *shared)
        assert [text for text in told if text not in page] == []
    assert [code for code in EXITS if f"\n| {code} | " not in page] == []
    assert [code for code in FAILURES if f"\n| `{code}` | " not in page] == []


def test_a_bar_inside_a_cell_is_escaped():
    for line in cli_reference().splitlines():
        if line.startswith("| `"):
            assert line.replace("\\|", "").count("|") in {3, 4}
