import importlib
import re

import pytest

from noetl.dsl.documents.credential_types import TYPES
from noetl.dsl.shape import Fields
from noetl.dsl.tasks import KINDS
from noetl.dsl.tasks.about import about

MAP_LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+(?:/|\.py))(?: |$)", re.MULTILINE)


@pytest.fixture(scope="module")
def reference(root):
    del root
    return importlib.import_module("scripts.reference")


def test_the_readme_names_the_two_commands(root):
    readme = (root / "README.md").read_text(encoding="utf-8")

    assert "`make up`" in readme
    assert "`make test`" in readme


def test_the_readme_shows_files_that_exist(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"examples/[\w./-]+\.yaml", readme))

    assert named
    assert [name for name in sorted(named) if not (root / name).exists()] == []


def test_the_architecture_page_fits_on_150_lines(root):
    assert len((root / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_package_tree_of_the_architecture_page_equals_the_folders(root):
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    block = page.split("## Package tree")[1].split("```")[1]
    source = root / "src" / "noetl"
    folders = {
        path.parent.relative_to(source.parent).as_posix() + "/" for path in source.rglob("*.py")
    }
    modules = {f"noetl/{path.name}" for path in source.glob("*.py") if path.name != "__init__.py"}

    assert _listed(block) == sorted(folders | modules)


def test_the_layers_of_the_architecture_page_are_those_of_the_contract(root, config):
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    block = page.split("## Layers")[1].split("```")[1]

    contract = config["tool"]["importlinter"]["contracts"][0]
    assert block.strip().splitlines() == contract["layers"]


def test_the_map_in_the_package_names_every_package(root):
    text = (root / "src" / "noetl" / "__init__.py").read_text(encoding="utf-8")
    source = root / "src" / "noetl"
    names = {
        p.stem for p in source.iterdir() if p.stem[0] != "_" and (p.is_dir() or p.suffix == ".py")
    }

    assert sorted(re.findall(r"^`(\w+)` ", text, re.MULTILINE)) == sorted(names)


def test_every_decision_is_in_the_index_and_on_one_page(root):
    folder = root / "docs" / "adr"
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    index = (folder / "README.md").read_text(encoding="utf-8")

    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index) == [path.name for path in pages]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], page.name
        assert len(text.splitlines()) <= 60, page.name


def test_a_stale_page_is_found(reference, monkeypatch):
    monkeypatch.setitem(reference.PAGES, "docs/reference/settings.md", lambda: "# Other\n")

    assert list(reference.stale()) == ["docs/reference/settings.md is stale; run `make docs`"]


def test_a_dead_link_is_found(reference, tmp_path):
    (tmp_path / "b.md").write_text("# A title\n")
    page = tmp_path / "a.md"
    page.write_text("[1](b.md#a-title) [2](c.md) [3](b.md#other) [4](https://example.com)\n")

    assert list(reference.dead_links(tmp_path, [page])) == [
        "a.md: no file c.md",
        "a.md: no heading b.md#other",
    ]


def test_every_environment_name_that_is_read_is_in_the_table(root):
    from noetl.settings import SETTINGS  # noqa: PLC0415 - read beside the text it is compared with

    files = (root / "src" / "noetl" / "settings").glob("*.py")
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    read = re.findall(r'env\.get\("(\w+)"|"(\w+)" in env|env\["(\w+)"\]|= of\(\s*"(\w+)"', text)
    known = {name for s in SETTINGS for name in (s.name, *s.aliases)}
    known |= {f"{s.name}_FILE" for s in SETTINGS if s.kind == "secret"}

    assert {name for names in read for name in names if name} - known == set()


def test_every_route_of_the_server_stands_on_its_page(reference, root):
    page = (root / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    found = [f"### {method} {path}" for method, path, *_ in reference.interfaces.routes()]

    assert [line for line in found if line.replace(":path}", "}") not in page] == []


def test_every_route_of_the_gateway_stands_on_its_page(reference, root):
    page = (root / "docs" / "reference" / "gateway-api.md").read_text(encoding="utf-8")
    document = reference.interfaces.gateway_document(reference.interfaces.gateway().routes)
    wanted = [
        f"### {method.upper()} {path}"
        for path, item in document["paths"].items()
        for method in item
    ]

    assert sorted(re.findall(r"^### [A-Z]+ /.*$", page, re.MULTILINE)) == sorted(wanted)


def test_every_reason_of_a_worker_that_is_not_ready_is_on_the_page(root, reference):
    text = (root / "src" / "noetl" / "worker" / "app.py").read_text(encoding="utf-8")
    states = text.split("def reasons(self)")[1].split("}")[0]
    page = reference.PAGES["docs/reference/processes.md"]()

    named = re.findall(r'^ +"(\w+)": ', states, re.MULTILINE)
    assert named
    assert [name for name in named if f"| worker | `{name}` |" not in page] == []


def test_every_reason_of_a_gateway_that_is_not_ready_is_on_the_page(reference):
    from noetl.api.gateway import GatewayReadiness  # noqa: PLC0415 - read beside its page

    page = reference.PAGES["docs/reference/processes.md"]()
    told = {"status", "draining", "failing"}
    named = [name for name in GatewayReadiness.__struct_fields__ if name not in told]

    assert re.findall(r"^\| gateway \| `([^`]+)` \|", page, re.MULTILINE) == [*named, "task:NAME"]


def test_every_code_of_a_refused_start_is_raised_somewhere(root, reference):
    page = reference.PAGES["docs/reference/processes.md"]()
    table = page.split("## Why a process does not start")[1].split("\n## ")[0]
    files = (root / "src" / "noetl").rglob("*.py")
    text = "".join(file.read_text(encoding="utf-8") for file in files)

    codes = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert codes
    assert [code for code in codes if f'"{code}"' not in text] == []


def test_every_series_of_a_process_is_on_the_page(reference):
    page = reference.PAGES["docs/reference/metrics.md"]()
    made = reference.interfaces
    served = [
        *made.ServerMetrics().all.names,
        *made.WorkerMetrics("shared", ())._metrics.names,  # noqa: SLF001 - every series
        *made.gateway().gate.metrics.all.names,
    ]

    assert [name for name in served if f"| `{name}` |" not in page] == []


def test_every_fragment_of_the_changelog_has_a_known_kind(root, config):
    kinds = {kind["directory"] for kind in config["tool"]["towncrier"]["type"]}
    fragments = [p for p in (root / "changes").iterdir() if p.name != "README.md"]

    assert [
        p.name for p in fragments if p.name.rsplit(".", 2)[1:] not in [[k, "md"] for k in kinds]
    ] == []


def _listed(block):
    found, parents = [], []
    for match in MAP_LINE.finditer(block):
        depth = len(match["indent"]) // 2
        parents = [*parents[:depth], match["name"]]
        found.append("".join(parents))
    return sorted(found)


def test_every_kind_that_workers_run_has_a_page_with_its_result_and_an_example(root):
    pages = root / "docs" / "reference" / "tools"
    built = [*(kind for kind in KINDS if about(kind).is_built), "task_sequence"]
    lacking = {
        kind: missing
        for kind in built
        if (missing := {"## Keys", "## Result", "## Example"}
            - set((pages / f"{kind}.md").read_text(encoding="utf-8").split("\n")))
    }  # fmt: skip

    assert lacking == {}
    assert {path.stem for path in pages.iterdir()} == {*KINDS, "task_sequence"}


def test_the_page_of_credentials_has_the_fields_of_every_type(root):
    page = root / "docs" / "reference" / "language" / "Credential.md"
    text = page.read_text(encoding="utf-8").partition("## Type ")[2]

    assert [kind for kind in TYPES if f"`{kind}`" not in text] == []
    names = {name for cls in TYPES.values() for name in Fields.of(cls).by_name}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
