from hashlib import sha256

import pytest

from noetl.local.playbooks import Shelf, id_of
from noetl.store.base import CatalogEntry
from noetl.store.memory.store import MemoryStore

TEXT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: child, path: {path}}}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""


def write(file, path):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEXT.format(path=path))


def entry(path, content):
    return CatalogEntry(
        catalog_id="1", path=path, version=0, kind="Playbook", content=content,
        digest=sha256(content.encode()).hexdigest(), created_at="",
    )  # fmt: skip


@pytest.fixture
def shelf(tmp_path):
    return Shelf(MemoryStore().catalog, tmp_path)


async def test_an_id_is_made_of_the_content(shelf):
    kept = await shelf.add(entry("a/b", "x"))

    assert kept.catalog_id == id_of("a/b", "x")
    assert (await shelf.get(kept.catalog_id)).content == "x"
    assert await shelf.resolve("default", "a/b") == kept
    assert 1 <= int(kept.catalog_id) < 2**62


async def test_a_playbook_is_found_by_its_path_wherever_it_lies(shelf, tmp_path):
    write(tmp_path / "deep" / "down" / "other.yaml", "etl/notify")
    write(tmp_path / "notify.yaml", "else/where")

    found = await shelf.resolve("default", "etl/notify")

    assert (found.path, found.version) == ("etl/notify", 1)


@pytest.mark.parametrize("name", ["notify.yaml", "etl/notify.yml"])
async def test_a_playbook_is_found_by_the_name_of_its_file(shelf, tmp_path, name):
    write(tmp_path / name, "another/path")

    assert (await shelf.resolve("default", "etl/notify")).path == "another/path"


async def test_what_lies_in_hidden_folders_or_is_no_playbook_is_not_found(shelf, tmp_path):
    write(tmp_path / ".hidden" / "notify.yaml", "etl/notify")
    (tmp_path / "broken.yaml").write_text("kind: Playbook\nmetadata: {path: etl/broken}\n")
    (tmp_path / "list.yaml").write_text("[Playbook]")
    (tmp_path / "other.yaml").write_text("kind: PlaybookTest\nmetadata: {path: etl/notify}\n")

    assert await shelf.resolve("default", "etl/notify") is None
    assert await shelf.resolve("default", "etl/broken") is None
    assert await shelf.resolve("default", "../notify") is None
    assert await shelf.get("12") is None


async def test_a_version_of_the_past_is_not_looked_for(shelf, tmp_path):
    write(tmp_path / "notify.yaml", "etl/notify")

    assert await shelf.resolve("default", "etl/notify", 3) is None


async def test_a_file_is_found_by_the_id_of_its_content(shelf, tmp_path):
    write(tmp_path / "notify.yaml", "etl/notify")
    wanted = id_of("etl/notify", TEXT.format(path="etl/notify"))

    assert (await shelf.get(wanted)).path == "etl/notify"
