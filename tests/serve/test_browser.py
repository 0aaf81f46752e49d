"""The page in a real browser: a stream turns external, its row changes and the alarm shows, within two seconds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("prometheus_client", reason="btfl[serve] is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from fleet import foreign, own, save_fleet
from server_process import Server, infer_body, sqlite

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium (apt: chromium-driver)")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip
WITHIN = 2.0  # seconds, from the request that turns the stream to the alarm on the page


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("watched")
    with Server(str(save_fleet(folder / "fleet")), sqlite(folder)) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    one = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield one
    one.quit()


def wait(browser: Any, script: str, within: float = 30.0) -> float:
    """Wait until a script is true; return the seconds that it took."""
    begun = time.monotonic()
    while not browser.execute_script(f"return Boolean({script})"):
        assert time.monotonic() - begun < within, browser.execute_script("return document.body.innerText")
        time.sleep(0.02)
    return time.monotonic() - begun


def send(server: Server, sequence: str, features: np.ndarray, start: bool = False) -> None:
    status, said = server.ask("/v2/models/client-1/infer", infer_body(features, sequence, start=start))
    assert status == 200, said


def test_a_stream_turns_and_the_page_shows_it_at_once(server: Server, browser: Any) -> None:
    browser.get(f"{server.url}/")
    wait(browser, "document.getElementById('live').textContent === 'live'")
    assert browser.execute_script("return document.getElementById('none').hidden") is False
    send(server, "camera", own(1, 60), start=True)
    row = "document.querySelector('#streams tbody tr')"
    wait(browser, f"{row}?.cells[2].textContent === 'camera'")
    assert browser.execute_script(f"return {row}.cells[0].textContent") == "own"
    assert browser.execute_script(f"return {row}.className") == ""
    send(server, "camera", foreign(1, 20))
    seconds = wait(browser, f"{row}.className === 'alarmed' && {row}.cells[0].textContent === 'external'")
    assert browser.execute_script("return document.querySelector('#total-alarmed b').textContent") == "1"
    assert browser.title.startswith("▲ 1 turned")
    assert seconds < WITHIN


def test_one_stream_in_depth_is_live(server: Server, browser: Any) -> None:
    send(server, "deep", own(1, 40), start=True)
    browser.get(f"{server.url}/")
    wait(
        browser,
        "[...document.querySelectorAll('#streams tbody tr')].some((row) => row.cells[2].textContent === 'deep')",
    )
    browser.execute_script(
        "[...document.querySelectorAll('#streams tbody tr')].find((row) => row.cells[2].textContent === 'deep').click()"
    )
    wait(browser, "document.querySelectorAll('#charts .chart svg path').length === 3")
    assert browser.execute_script("return document.getElementById('name').textContent") == "client-1 · stream deep"
    assert "none" in browser.execute_script("return document.getElementById('alarms').textContent")
    for number in range(6):
        send(server, "deep", foreign(1, 4, number))
    wait(browser, "document.getElementById('now').className === 'alarmed'")
    assert "external begins" in browser.execute_script("return document.getElementById('alarms').textContent")
    assert browser.execute_script("return document.querySelectorAll('#charts .begin').length") >= 3


def test_nothing_is_wrong_or_loaded_from_elsewhere(server: Server, browser: Any) -> None:
    asked = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert all(name.startswith(server.url) for name in asked)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1200, "dark")])
def test_it_fits_a_phone_and_the_dark(server: Server, browser: Any, width: int, scheme: str) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(f"{server.url}/")
    wait(browser, "document.querySelector('#streams tbody tr')")
    page = "document.documentElement"
    assert browser.execute_script(f"return {page}.scrollWidth - {page}.clientWidth") == 0
    ground = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
    )
    assert (sum(ground) < 3 * 64) == (scheme == "dark")


@pytest.mark.slow
def test_a_token_is_asked_for_and_kept_to_the_tab(tmp_path: Path, browser: Any) -> None:
    from btfl.serve.schema import open_engine
    from btfl.serve.tokens import TokenBook

    engine = open_engine(sqlite(tmp_path))
    text, _ = TokenBook(engine).new("wall", ["read"], "*")
    engine.dispose()
    with Server(str(save_fleet(tmp_path / "fleet", 1)), sqlite(tmp_path)) as server:
        browser.get(f"{server.url}/")
        wait(browser, "!document.getElementById('ask').hidden")
        assert browser.execute_script("return document.getElementById('fleet').hidden")
        enter = "document.getElementById('token').value = arguments[0]; document.getElementById('ask').requestSubmit()"
        browser.execute_script(enter, "btfl_wrong")
        wait(browser, "document.getElementById('refused').textContent.includes('token')")
        browser.execute_script(enter, text)
        wait(browser, "document.getElementById('live').textContent === 'live'")
        assert browser.execute_script("return localStorage.length") == 0
        assert text not in browser.current_url
