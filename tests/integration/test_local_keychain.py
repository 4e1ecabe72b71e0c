"""`noetl run`: its server asks for tokens like any other one, and shows none."""

from __future__ import annotations

import json

from noetl.cli.app import main
from tests.fakes import oauth as known
from tests.fakes.oauth import OAuth

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t/main}
workload: {at: ""}
keychain:
  - {name: k, kind: oauth2, auth: app, endpoint: "{{ workload.at }}/oauth/token"}
workflow:
  - step: start
    tool:
      kind: python
      input: {t: "{{ keychain.k.token }}"}
      code: "result = [t.startswith('canary-access-'), t]"
"""


def test_a_local_run_gets_a_token_for_a_client(tmp_path, capsys) -> None:
    client = {
        "type": "oauth2", "client_id": known.CLIENT, "client_secret": known.SECRET,
    }  # fmt: skip
    (tmp_path / "p.yaml").write_text(PLAYBOOK)
    (tmp_path / "c.json").write_text(json.dumps(client))
    web = OAuth()
    try:
        words = (
            "run", str(tmp_path / "p.yaml"), "--credential", f"app={tmp_path / 'c.json'}",
            "--set", f"at={web.url}", "--json",
        )  # fmt: skip
        code = main(words)
    finally:
        web.stop()
    out, err = capsys.readouterr()
    assert (code, json.loads(out)["result"]) == (0, [True, "***"]), out + err
    assert "canary-" not in out + err
    assert len(web.asked) == 1
