# SPDX-License-Identifier: GPL-3.0-or-later
"""The page in a real browser: what somebody reads on it, in every state and on every screen."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from evaluator.backends.common.sensors import Sensors
from evaluator.devices.opening.loading import Loader
from evaluator.service.http.routes import serve_health
from evaluator.service.networks import NetworkToLoad
from evaluator.service.service import EvaluatorService
from tests.browser import Page, browsing, needs_browser
from tests.evaluator.service.echo import EchoBackend, numbered_batch
from tests.evaluator.service.harness import Harness, devices, running
from tests.evaluator.service.http.test_page import shown
from tests.evaluator.service.process import needs_ipc
from tests.evaluator.service.test_failures import failing

pytestmark = [pytest.mark.integration, needs_browser]

MALICE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"

INSIDE = (
    "[...document.querySelectorAll('#devices td:last-child')].map((each) => each.getBoundingClientRect())"
    ".map(({left, right, height}) => left >= 0 && right <= WIDTH && height > 0)"
)

STATE = "document.documentElement.dataset.state"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """A tab that nothing has happened in yet, and in which nothing goes wrong that a test does not expect."""
    browser.open("about:blank", width=1200)
    browser.problems.clear()
    browser.requests.clear()
    yield browser
    assert browser.problems == []


def show(page: Page, port: int, state: str, **screen: Any) -> None:
    """Open the page, and wait until it shows a service in that state."""
    page.open(f"http://127.0.0.1:{port}/", **{"width": 1200, **screen})
    page.wait(lambda: page.value(STATE) == state)


def rows(page: Page, section: str) -> list[list[str]]:
    """What the cells of a table say."""
    found: list[list[str]] = page.value(
        f"[...document.querySelectorAll('#{section} tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return found


def busy(harness: Harness, name: str = "a client") -> None:
    """Have a client evaluate something of each class."""
    client = harness.client(name=name)
    client.evaluate(numbered_batch(3), priority="play")
    client.evaluate(numbered_batch(300), priority="selfplay")


def test_somebody_reads_how_the_service_is(page: Page, tmp_path: Path) -> None:
    with shown(tmp_path, backends=("first", "second")) as (harness, port):
        busy(harness)
        show(page, port, "ready")
        page.wait(lambda: rows(page, "clients"))
        text = page.text()
        assert page.value("document.title") == "ready · Wavefront evaluator"
        assert harness.address in text
        assert [row[0] for row in rows(page, "classes")] == ["play", "analysis", "selfplay"]
        assert [row[0] for row in rows(page, "devices")] == ["0:first test", "1:second test"]
        (client,) = rows(page, "clients")
        assert client[0].startswith("a client")
        assert client[1] == "selfplay"
        assert client[4] == "303"
        assert "None in the log." in text
        assert page.value("document.querySelectorAll('#networks .line').length") == 2
        assert page.value("document.querySelectorAll('#networks .dot').length") >= 2
        assert page.value("document.querySelectorAll('#networks .share').length") >= 1
        label = page.value("document.querySelector('#networks svg').getAttribute('aria-label')")
        assert label.startswith("Measured curve of echo: 1 in 1.0 ms to 2048 in ")


def test_power_and_temperature_are_read_on_any_screen(page: Page, tmp_path: Path) -> None:
    sensors = {"first": Sensors(412.5, 61.0), "second": Sensors(celsius=48.25), "third": None}
    make = lambda name: EchoBackend(sensed=sensors[name])  # noqa: E731
    with shown(tmp_path, backends=tuple(sensors), make=make) as (_, port):
        for width in (360, 1600):
            show(page, port, "ready", width=width)
            page.wait(lambda: [row[-1] for row in rows(page, "devices")] == ["413 W · 61 °C", "48 °C", "–"])
            assert page.value(INSIDE.replace("WIDTH", str(width))) == [True] * 3
            label = "getComputedStyle(document.querySelector('#devices td:last-child'), '::before').content"
            assert (page.value(label) == '"power"') == (width == 360)
        assert page.value("document.documentElement.scrollWidth") <= 1600


def test_unlisted_clients_are_counted(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.service.http.overview.MOST_CLIENTS", 2)
    with shown(tmp_path) as (harness, port):
        for _ in range(3):
            harness.client().ping()
        show(page, port, "ready")
        page.wait(lambda: len(rows(page, "clients")) == 2)
        assert "Clients the 2 busiest of 3" in page.text()


@needs_ipc
def test_local_clients_are_shown_with_their_processes(page: Page, tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        shown(tmp_path, address=f"ipc://{folder}/e") as (harness, port),
    ):
        harness.client(name="the engine").ping()
        show(page, port, "ready")
        page.wait(lambda: rows(page, "clients"))
        assert rows(page, "clients")[0][0] == (
            f"the engine this machine, process {os.getpid()} of user {os.getuid()}"
        )


def test_nothing_is_asked_of_another_host(page: Page, tmp_path: Path) -> None:
    with shown(tmp_path) as (_, port):
        show(page, port, "ready")
        page.wait(lambda: sum(url.endswith("/status") for url in page.requests) >= 2)
        assert {urlsplit(url).netloc for url in page.requests} == {f"127.0.0.1:{port}"}


def test_names_are_text_whatever_they_are(page: Page, tmp_path: Path) -> None:
    with shown(tmp_path) as (harness, port):
        client = harness.client(name=MALICE)
        client.evaluate(numbered_batch(1))
        served = harness.service.record.networks.find("")
        served.info = replace(served.info, name=MALICE)
        show(page, port, "ready")
        page.wait(lambda: rows(page, "clients"))
        assert page.text().count(MALICE) == 2
        assert page.value("document.title") == "ready · Wavefront evaluator"
        assert page.value("document.querySelectorAll('main script, main img').length") == 0


def test_a_degraded_service_says_why(page: Page, tmp_path: Path) -> None:
    with shown(tmp_path, backends=("first", "second")) as (harness, port):
        show(page, port, "ready")
        client = harness.client()
        harness.backends[0].answer = failing
        while harness.service.record.state().in_use["0:first"]:
            client.evaluate(numbered_batch(1))
        page.wait(lambda: page.value(STATE) == "degraded")
        text = page.text()
        assert "Degraded" in text
        assert text.count("the device fell off the bus") >= 2, "as the reason, and among the warnings"
        state, why = rows(page, "devices")[0][1].split("\n")
        assert state.startswith("left out, tried again in ")
        assert why.endswith("the device fell off the bus")
        assert rows(page, "warnings")[0][1] == "error"


@pytest.mark.parametrize("width", [360, 1600])
def test_no_text_needs_a_pointer(page: Page, tmp_path: Path, width: int) -> None:
    with shown(tmp_path) as (harness, port):
        busy(harness)
        show(page, port, "ready", width=width)
        page.wait(lambda: rows(page, "clients"))
        assert page.value("document.querySelectorAll('[title]').length") == 0
        text = " ".join(page.text().split())
        assert re.search(r"for \d+ s, since \d\d:\d\d:\d\d", text)
        assert "half · 99 of 100 of them" in text
        assert "0 of 65.5k" in text
        assert re.search(r"300 in [\d.]+ ms (just now|\d+ s ago)", text)
        assert "the smallest batch within 5 % of the best rate" in text


TELLS = "[...document.querySelectorAll('.tip')].map((tip) => !tip.hidden)"


def test_a_chart_tells_its_values_to_fingers_and_keys(page: Page, tmp_path: Path) -> None:
    with shown(tmp_path) as (_, port):
        show(page, port, "ready", width=360)
        page.wait(lambda: page.value("document.querySelectorAll('#networks .line').length"))
        assert page.value(TELLS) == [False, False]
        page.value("document.querySelector('#networks .chart').scrollIntoView({block: 'center'})")
        spot = page.value(
            "(({left, top, width, height}) => ({x: left + width / 2, y: top + height / 2}))"
            "(document.querySelector('#networks .chart').getBoundingClientRect())"
        )
        page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[spot])
        page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        assert page.value(TELLS) == [False, True]
        assert page.value("document.querySelector('#networks .tip').innerText").endswith(" positions/s")
        for section in ("past", "networks"):
            page.value(f"document.querySelector('#{section} .chart').focus()")
            page.key("ArrowLeft")
        assert page.value(TELLS) == [False, True], "of one chart at a time"


def test_a_service_that_loads_and_one_that_drains(page: Page, tmp_path: Path) -> None:
    with (
        closing(EvaluatorService(Loader(devices("random")), [NetworkToLoad(None)])) as service,
        serve_health("127.0.0.1", 0, service.record) as port,
    ):
        show(page, port, "loading")
        page.wait(lambda: "None is loaded yet." in page.text())
        page.open("about:blank", width=1200)  # or it would miss the service that is closed now
    with shown(tmp_path) as (harness, port):
        harness.occupy(harness.client(), 1)
        harness.service.drain("SIGTERM")
        show(page, port, "draining")
        page.wait(lambda: "SIGTERM" in page.text())
        assert "Nothing new is taken" in page.text()
        page.wait(lambda: [row[6] for row in rows(page, "clients")] == ["0"])
        harness.backend.gate.set()


def test_a_service_that_is_gone_is_missed_and_found_again(page: Page, tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        with serve_health("127.0.0.1", 0, harness.service.record) as port:
            show(page, port, "ready")
        page.wait(lambda: page.value(STATE) == "lost")
        assert "No answer since " in page.text()
        assert "echo" in page.text(), "what was known is still there"
        page.value("window.dispatchEvent(new Event('resize'))")
        assert page.value(STATE) == "lost"
        with serve_health("127.0.0.1", port, harness.service.record):
            page.wait(lambda: page.value(STATE) == "ready")
            assert "No answer" not in page.text()
    assert all("ERR_" in problem for problem in page.problems)
    page.problems.clear()


def test_a_tab_that_nobody_sees_asks_for_nothing(page: Page, tmp_path: Path) -> None:
    counting = """
        window.asked = 0; window.timers = [];
        const ask = window.fetch;
        window.fetch = (...what) => { asked += 1; return ask(...what); };
        window.setTimeout = (work) => timers.push(work);
    """
    ring = "timers.splice(0).forEach((work) => work()), asked"
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source=counting)
    with shown(tmp_path) as (_, port):
        show(page, port, "ready")
        page.wait(lambda: page.value("timers.length") == 1)
        assert page.value(ring) == 2
        page.wait(lambda: page.value("timers.length") == 1)
        page.value("Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: 1})")
        assert page.value(ring) == 2
        assert page.value("timers.length") == 0, "and nothing that would ask later"
        page.value("delete document.visibilityState")
        assert page.value("document.dispatchEvent(new Event('visibilitychange')), asked") == 3
        page.wait(lambda: page.value("timers.length") == 1)
    page.call("Page.removeScriptToEvaluateOnNewDocument", **script)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 901, 1600])
def test_it_fits_the_screen_in_both_schemes(page: Page, tmp_path: Path, width: int, dark: bool) -> None:
    with shown(tmp_path) as (harness, port):
        busy(harness, "a-client-with-a-name-that-has-no-place-to-break-it-" + 100 * "x")
        show(page, port, "ready", width=width, dark=dark)
        page.wait(lambda: rows(page, "clients"))
        assert page.value("document.documentElement.scrollWidth") <= width
        outside = page.value(
            "[...document.querySelectorAll('main *')].filter((each) => !each.closest('thead')"
            " && each.getClientRects().length"
            " && each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)"
            ".map((each) => each.outerHTML)"
        )
        assert outside == []
        ground = page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (max(ground) < 64) == dark
