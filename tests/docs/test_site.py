"""The site in a real browser: every page at four widths in both colours, with nothing fetched from elsewhere (slow)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from docs.blocks import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WIDTHS = (390, 768, 1280, 1920)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium (apt: chromium-driver)"),
]
LOOK = """
const page = document.documentElement;
return {
  overflow: Math.max(0, page.scrollWidth - page.clientWidth),
  missing: [...document.images].filter((one) => one.complete && !one.naturalWidth).map((one) => one.src),
  scheme: document.body.dataset.mdColorScheme,
};
"""


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site's tools are not installed: pip install 'btfl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
                 "--disable-component-update", "--no-first-run", "--hide-scrollbars"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    one = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield one
    one.quit()


@pytest.mark.parametrize(("scheme", "shown"), [("light", "default"), ("dark", "slate")])
def test_every_page_fits_and_fetches_nothing(site: Path, address: str, browser: Any, scheme: str, shown: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(pages) > 60
    right, wrong = {"overflow": 0, "missing": [], "scheme": shown}, []
    browser.get("about:blank")
    for page in pages:
        # a page remembers the colours that it was shown in, and would show them again
        remembered = {"origin": address.rstrip("/"), "storageTypes": "local_storage"}
        browser.execute_cdp_cmd("Storage.clearDataForOrigin", remembered)
        browser.get(address + page)
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            deadline = time.monotonic() + 5
            while (seen := browser.execute_script(LOOK)) != right and time.monotonic() < deadline:
                time.sleep(0.1)  # menus move to their new places
            if seen != right:
                wrong.append((page, width, seen))
    print(f"{len(pages)} pages at {len(WIDTHS)} widths in {scheme}")
    assert not wrong
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked
