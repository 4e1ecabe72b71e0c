import json
import shutil

from tests.unit.cli.conftest import EXAMPLES

NETWORKED = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t/main}
executor: {spec: {pool: big}}
keychain: [{name: app, kind: credential, credential: partner}]
workflow:
  - step: start
    tool:
      - {name: a, kind: http, url: 'https://api.example.com/x', auth: basic_login}
      - {name: b, kind: http, url: '{{ workload.url }}/y'}
      - {name: c, kind: postgres, connection: {host: db.internal}, auth: pg, sql: select 1}
    next: {arcs: [{step: child}]}
  - step: child
    spec: {pool: gpu}
    loop: {in: [1], iterator: x}
    tool: {kind: playbook, path: t/other}
"""


def test_the_plan_names_what_a_run_would_touch(noetl, tmp_path):
    (tmp_path / "t.yaml").write_text(NETWORKED)
    code, out, err = noetl("run", "t.yaml", "--dry-run", "-o", "json")

    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "path": "t/main",
        "entry": "start",
        "steps": [
            {
                "step": "start", "tools": ["http", "http", "postgres"], "loop": None, "pool": "big",
                "credentials": ["basic_login", "pg"],
                "hosts": ["api.example.com", "db.internal", "{{ workload.url }}/y"],
                "playbooks": [], "next": ["child"],
            },
            {
                "step": "child", "tools": ["playbook"], "loop": "sequential", "pool": "gpu",
                "credentials": [], "hosts": [], "playbooks": ["t/other"], "next": [],
            },
        ],
        "pools": ["big", "gpu"],
        "credentials": ["basic_login", "partner", "pg"],
        "keychain": ["app"],
        "hosts": ["api.example.com", "db.internal", "{{ workload.url }}/y"],
        "playbooks": ["t/other"],
    }  # fmt: skip
    assert not (tmp_path / ".noetl").exists()


def test_the_plan_as_a_table(noetl, tmp_path):
    shutil.copy(EXAMPLES / "subplaybook_parent.yaml", tmp_path)

    assert noetl("run", "subplaybook_parent.yaml", "--dry-run").out == (
        "step   tools                     pool    next\n"
        "start  playbook (loop parallel)  shared  total\n"
        "total  python                    shared\n"
        "playbooks: examples/subplaybook_child\n"
    )
