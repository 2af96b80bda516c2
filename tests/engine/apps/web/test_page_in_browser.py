# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of `wavefront web` in a real browser."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.browser import Page, browsing, needs_browser
from tests.engine.apps.web.serving import Web, web

pytestmark = [pytest.mark.integration, needs_browser]

LADDER = "7k/8/8/8/8/8/R7/1R5K w - - 0 1"
"""White mates by Rb7, Kg8 (forced), Ra8."""

GAMES = '[White "Ann"]\n\n1. e4 e5 (1... c5 2. Nf3) 2. Nf3 1-0\n\n[White "Bob"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n'


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    with web() as made:
        yield made


@pytest.fixture
def page(server: Web, tmp_path: Path) -> Iterator[Page]:
    with browsing(tmp_path) as made:
        show(made, server.url)
        yield made
        assert [each for each in made.problems if "503" not in each] == []  # The page repeats these requests.
        assert all(url.startswith((server.url, "data:", "blob:")) for url in made.requests)


def show(page: Page, url: str, *, width: int = 1200, dark: bool = False) -> None:
    """Open the first page, and wait for the lines of its search."""
    page.open(url, width=width, dark=dark)
    page.wait(lambda: count(page, "#pvs li") == 3)


def count(page: Page, selector: str) -> object:
    return page.value(f"document.querySelectorAll({json.dumps(selector)}).length")


def set_up(page: Page, fen: str) -> None:
    """Put a position on the board."""
    fill(page, "fen", fen)
    men = sum(map(str.isalpha, fen.split()[0]))
    page.wait(lambda: count(page, ".board .piece") == men)


def text_of(page: Page, name: str) -> str:
    return str(page.value(f"document.getElementById({json.dumps(name)})?.innerText ?? ''"))


def press(page: Page, name: str) -> None:
    page.value(f"document.getElementById({json.dumps(name)}).click()")


def fill(page: Page, name: str, value: str, event: str = "change") -> None:
    target = f"document.getElementById({json.dumps(name)})"
    page.value(
        f"{target}.value = {json.dumps(value)}; {target}.dispatchEvent(new Event({json.dumps(event)}))"
    )


def square(page: Page, name: str) -> tuple[float, float]:
    """The middle of a square in the window."""
    box = page.value(
        "(() => { const box = document.querySelector('.board').getBoundingClientRect(); "
        "return [box.x, box.y, box.width]; })()"
    )
    column, row = ord(name[0]) - ord("a"), 8 - int(name[1])
    return box[0] + (column + 0.5) * box[2] / 8, box[1] + (row + 0.5) * box[2] / 8


def tap(page: Page, move: str) -> None:
    page.click(*square(page, move[:2]))
    page.click(*square(page, move[2:4]))


def moves(page: Page) -> str:
    return text_of(page, "moves").replace("\n", " ")


def move_buttons(page: Page) -> list[str]:
    found = page.value("[...document.querySelectorAll('#moves button')].map(each => each.textContent)")
    return list(found)


def now(page: Page) -> object:
    """The move on the board."""
    return page.value("document.querySelector('#moves .now')?.textContent ?? null")


def shows(page: Page, san: str) -> bool:
    return now(page) == san


def begin_game(page: Page, *, clock: str = "", here: bool = False) -> None:
    press(page, "tab-play")
    fill(page, "side-of", "white")
    fill(page, "clock", clock)
    page.value(f"document.getElementById('from-here').checked = {json.dumps(here)}")
    page.value("document.querySelector('#new-game button').click()")
    page.wait(lambda: "You" in text_of(page, "below"))


LATE = """{ const asked = window.fetch;
window.fetch = (path, options) => !String(path).endsWith("/move") ? asked(path, options)
  : new Promise(done => { window.held = () => done(asked(path, options)); }); }"""
"""Holds the engine's move until `held` is called."""

FAILING = """{ const asked = window.fetch, answer = "ANSWER", state = document.getElementById("state");
let once = true; window.told = "";
new MutationObserver(() => { told += state.textContent; }).observe(state, {childList: true});
window.fetch = async (path, options) => {
  if (!once || !String(path).endsWith("/move")) return asked(path, options);
  once = false;
  if (answer === "lost") throw new TypeError("Failed to fetch");
  return new Response('{"error": "busy"}', {status: Number(answer), headers: {"Retry-After": "1"}});
}; }"""
"""Lets the first request for a move fail, and keeps the messages of the page, which vanish soon."""


def test_game_against_a_level_is_played_to_mate(page: Page) -> None:
    set_up(page, LADDER)
    begin_game(page, here=True)
    tap(page, "b1b7")
    page.wait(lambda: "Kg8" in moves(page))
    tap(page, "a2a8")
    page.wait(lambda: "1-0" in text_of(page, "verdict"))
    assert "Ra8#" in moves(page)
    assert "checkmate" in text_of(page, "verdict")


def test_move_is_taken_back_and_hinted_and_the_game_resigned(page: Page) -> None:
    begin_game(page)
    tap(page, "e2e4")
    page.wait(lambda: len(move_buttons(page)) == 2)
    press(page, "take-back")
    page.wait(lambda: "e4" not in moves(page))
    press(page, "hint")
    page.wait(lambda: "Hint" in text_of(page, "verdict"))
    press(page, "resign")
    page.wait(lambda: "0-1" in text_of(page, "verdict"))


def test_promotion_is_asked_for(page: Page) -> None:
    set_up(page, "8/P6k/8/8/8/8/8/K7 w - - 0 1")
    tap(page, "a7a8")
    knight = "document.querySelector('.board [aria-label=knight]')"
    page.wait(lambda: page.value(f"{knight} !== null"))
    page.value(f"{knight}.dispatchEvent(new PointerEvent('pointerdown', {{bubbles: true}}))")
    page.wait(lambda: "a8=N" in moves(page))


def test_analysis_follows_the_moves_and_keeps_its_lines(page: Page) -> None:
    x, y = square(page, "d2")
    page.mouse("mouseMoved", x, y)
    page.mouse("mousePressed", x, y)
    page.mouse("mouseMoved", *square(page, "d3"))
    page.mouse("mouseMoved", *square(page, "d4"))
    page.mouse("mouseReleased", *square(page, "d4"))
    page.wait(lambda: "d4" in moves(page))
    page.wait(lambda: count(page, "#pvs li") == 3)
    assert "White wins" in str(page.value("document.getElementById('bar').getAttribute('aria-valuetext')"))
    press(page, "search")
    press(page, "back")
    page.wait(lambda: page.value("document.querySelector('#moves .now') === null"))
    assert count(page, "#pvs li") == 3, "the lines of the start are kept"
    before = page.value("document.querySelector('.board .piece').parentNode.innerHTML")
    page.value("document.querySelector('#pvs button').dispatchEvent(new PointerEvent('pointerenter'))")
    page.wait(lambda: page.value("document.querySelector('.board .piece').parentNode.innerHTML") != before)


def test_people_of_a_rating_are_shown(page: Page) -> None:
    page.wait(lambda: "%" in text_of(page, "people"))
    fill(page, "human", "1100", "input")
    page.wait(lambda: text_of(page, "human-elo") == "1100")


def test_pgn_is_loaded_with_its_games_and_variations(page: Page) -> None:
    fill(page, "pgn", GAMES)
    press(page, "load")
    page.wait(lambda: "c5" in moves(page))
    assert count(page, "#moves .variation") == 1
    fill(page, "game", "2")
    page.wait(lambda: "Qh4#" in moves(page))
    for key in ("End", "ArrowLeft"):
        page.key(key)
    page.wait(lambda: page.value("document.querySelector('#moves .now')?.textContent") == "g4")


def test_board_is_played_by_keys_alone(page: Page) -> None:
    def focused() -> object:
        return page.value("document.activeElement.classList.contains('board')")

    while not focused():
        page.key("Tab")
    for key in ("ArrowUp", "Enter", "ArrowUp", "ArrowUp", "Enter"):  # From e1 to e2, and to e4.
        page.key(key, shift=key != "Enter")
    page.wait(lambda: "e4" in moves(page))
    assert "e4" in text_of(page, "spoken")


def test_arrow_keys_and_wheel_step_through_the_game_after_a_move(page: Page) -> None:
    for move, san in (("e2e4", "e4"), ("c7c5", "c5"), ("g1f3", "Nf3")):
        tap(page, move)
        page.wait(partial(shows, page, san))
    page.key("ArrowLeft")
    page.wait(lambda: now(page) == "c5")
    x, y = square(page, "e5")
    for delta, san in ((-120, "e4"), (120, "c5")):
        page.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)
        page.wait(partial(shows, page, san))


def test_late_answer_goes_to_its_game(page: Page) -> None:
    page.value(LATE)
    begin_game(page)
    tap(page, "e2e4")
    page.wait(lambda: page.value("window.held !== undefined"))
    press(page, "back")
    page.wait(lambda: now(page) is None)
    page.value("window.held()")
    page.wait(lambda: len(move_buttons(page)) == 2)
    assert now(page) is None
    assert count(page, "#moves .variation") == 0
    assert not page.value("document.querySelector('.board').classList.contains('playable')")


@pytest.mark.parametrize("answer", ["429", "503", "lost"])
def test_move_is_asked_for_again_after(page: Page, answer: str) -> None:
    page.value(FAILING.replace("ANSWER", answer))
    begin_game(page)
    tap(page, "e2e4")
    page.wait(lambda: len(move_buttons(page)) == 2)
    page.wait(lambda: text_of(page, "state") == "")
    assert "trying again" in page.value("told")


def test_flag_falls_for_a_draw_against_a_bare_king(page: Page) -> None:
    set_up(page, "8/8/3k4/8/8/8/4Q3/4K3 w - - 0 1")
    begin_game(page, clock="60 1", here=True)
    tap(page, "e2e3")
    page.wait(lambda: len(move_buttons(page)) == 2)
    page.value("{ const now = performance.now.bind(performance); performance.now = () => now() + 1e6; }")
    page.wait(lambda: text_of(page, "verdict").startswith("1/2-1/2, by time"))


@pytest.mark.parametrize("target", ["g1", "h1"])
def test_castling_takes_either_gesture(page: Page, target: str) -> None:
    set_up(page, "4k3/8/8/8/8/8/8/4K2R w K - 0 1")
    tap(page, f"e1{target}")
    page.wait(lambda: "O-O" in moves(page))


def test_second_finger_returns_the_piece(page: Page) -> None:
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    (x, y), second = square(page, "e2"), square(page, "d2")

    def touch(kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        page.call("Input.dispatchTouchEvent", type=kind, touchPoints=touches)

    touch("touchStart", (x, y))
    touch("touchMove", (x, y - 60))
    page.wait(lambda: count(page, ".board .held") == 1)
    touch("touchStart", (x, y - 60), second)
    page.wait(lambda: count(page, ".board .held") == 0)
    touch("touchMove", (x, y - 120), second)
    touch("touchEnd")
    assert moves(page) == ""


def test_end_shows_the_result_and_no_figures(page: Page) -> None:
    fill(page, "fen", "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")
    page.wait(lambda: text_of(page, "figures") == "1/2-1/2, by stalemate")
    assert text_of(page, "people") == ""


def test_game_goes_on_after_a_reload_and_a_restart_of_the_server(tmp_path: Path) -> None:
    with browsing(tmp_path) as page:
        with web(data=tmp_path / "data") as first:
            show(page, first.url)
            begin_game(page, clock="300 3")
            tap(page, "e2e4")
            page.wait(lambda: len(move_buttons(page)) == 2)
            before = moves(page)
            page.wait(lambda: list((tmp_path / "data").rglob("*.json")))
            page.value("location.reload()")
            page.wait(lambda: "You" in text_of(page, "below") and moves(page) == before)
            port = int(first.url.rstrip("/").rpartition(":")[2])
        tap(page, "d2d4")
        page.wait(lambda: "trying again" in text_of(page, "state"))
        with web(data=tmp_path / "data", port=port) as second:
            page.wait(lambda: len(move_buttons(page)) == 4)
            page.wait(
                lambda: "d4" in " ".join(each.read_text() for each in (tmp_path / "data").rglob("*.json"))
            )
            page.value("localStorage.setItem('other', '1')")
            page.open(second.url, width=1200)
            page.wait(lambda: moves(page).startswith(before) and "You" in text_of(page, "below"))


STATE = "document.getElementById('state')?.textContent"
"""What a growing review does, empty at its end."""

REVIEWED = f"!{STATE} && document.querySelectorAll('#moves button').length > 0"


def review(
    page: Page, server: Web, pgn: str, nodes: int, number: int = 1, *, width: int = 1280, height: int = 900
) -> None:
    """Open the page of a review, and wait for its end."""
    identity = server.post("review", {"pgn": pgn, "nodes": nodes}).data["id"]
    page.open(f"{server.url}review/{identity}/game-{number}.html", width=width, height=height)
    page.wait(lambda: page.value(REVIEWED))


def test_games_are_reviewed_listed_after_a_reload_and_deleted(page: Page) -> None:
    press(page, "tab-review")
    fill(page, "games", GAMES)
    fill(page, "depth", "100")
    page.value("document.querySelector('#start-review button').click()")
    page.wait(lambda: text_of(page, "job-state").startswith("done"))
    assert count(page, "#reviewed tr") == 2
    chosen = page.value("document.getElementById('reviews').value")
    page.value("window.old = true; location.reload()")
    page.wait(lambda: page.value("!window.old && document.readyState === 'complete'"))
    press(page, "tab-review")
    page.wait(lambda: text_of(page, "job-state").startswith("done"))
    assert page.value("document.getElementById('reviews').value") == chosen
    page.value("confirm = () => true")
    press(page, "forget")
    page.wait(lambda: page.value("document.getElementById('reviews').value") != chosen)


def test_review_shows_marks_before_its_end_and_stops_and_goes_on(page: Page, server: Web) -> None:
    pgn = "1. f3 e5 2. g4 d6 3. h4 d5 4. h5 *"
    identity = server.post("review", {"pgn": pgn, "nodes": 25_000}).data["id"]
    page.open(f"{server.url}review/{identity}/game-1.html#m3", width=1280)
    page.wait(lambda: page.value("document.querySelector('[data-ply=\"3\"][aria-current]') !== null"))
    page.wait(lambda: len(move_buttons(page)) == 7 and "positions" in str(page.value(STATE)))
    assert page.value("document.querySelector('#course polygon').points.length") == 10
    press(page, "run")
    page.wait(lambda: str(page.value(STATE)).startswith("stopped"))
    press(page, "run")
    page.wait(lambda: str(page.value(STATE)).startswith("running"))
    assert server.ask("DELETE", f"/api/v1/review/{identity}").status == 204
    page.open(server.url, width=1200)


@pytest.mark.parametrize(
    ("width", "height", "names"),
    [(1280, 800, ("board", "verdict", "moves", "course")), (390, 844, ("board", "verdict"))],
)
def test_review_is_in_view_without_scrolling(
    page: Page, server: Web, width: int, height: int, names: tuple[str, ...]
) -> None:
    tags = '[White "A player with a long name"]\n[Black "Another player"]\n[Event "A tournament"]\n\n'
    pgn = tags + " ".join(["Nf3 Nf6 Ng1 Ng8"] * 20) + " 1-0"
    review(page, server, pgn, 5, width=width, height=height)
    for name in names:
        box = page.value(f"document.getElementById('{name}').getBoundingClientRect().toJSON()")
        assert box["left"] >= 0 and box["right"] <= width and box["height"] > 0, (name, box)
        assert box["top"] >= 0 and box["bottom"] <= height, (name, box)


def test_finished_game_shares_its_tree_with_its_review(page: Page) -> None:
    fill(page, "depth", "100")
    begin_game(page)
    tap(page, "f2f3")
    page.wait(lambda: len(move_buttons(page)) == 2)
    assert page.value("document.getElementById('review-this').hidden")
    press(page, "resign")
    page.wait(lambda: "0-1" in text_of(page, "about"))
    press(page, "first")
    page.wait(lambda: now(page) is None)
    tap(page, "e2e4")  # A variation.
    page.wait(lambda: "e4" in moves(page))
    press(page, "review-this")
    page.wait(lambda: page.value(f"location.pathname.startsWith('/review/') && {REVIEWED}"))
    reply = page.value(
        "{ const [, reply] = document.querySelectorAll('#moves button'); reply.click(); reply.innerText; }"
    )
    page.value("document.getElementById('on-board').click()")
    page.wait(lambda: page.value("location.pathname === '/'") and now(page) in (reply, reply.rstrip("?!")))
    assert "e4" in moves(page)
    page.value("document.getElementById('to-review').click()")
    page.wait(lambda: page.value("location.hash") == "#m2")


def test_mistakes_are_tried_without_the_answer_and_refuted(page: Page, server: Web) -> None:
    review(page, server, GAMES, 400, number=2)  # A mate is found by any search.
    hidden = "getComputedStyle(document.querySelector('.verdict')).visibility"
    press(page, "try")
    page.wait(lambda: "g4 was a" in text_of(page, "detail"))
    assert page.value(hidden) == "hidden"
    tap(page, "g2g4")
    page.wait(lambda: "Qh4# answers" in text_of(page, "why"))
    tap(page, "b2b4")
    answers = ("Try again", "good, too", "Right.")  # By random values, the move may be the best of all.
    page.wait(lambda: any(each in text_of(page, "detail") for each in answers))
    press(page, "try")
    assert page.value(hidden) == "visible"
    press(page, "flip")
    press(page, "try")
    page.wait(lambda: "No more mistakes of Black" in text_of(page, "detail"))
    page.value("document.querySelector('#detail button').click()")
    page.wait(lambda: "White to move" in text_of(page, "detail"))


def test_blunder_is_warned_of_and_taken_back_or_played(page: Page) -> None:
    page.value("document.getElementById('warn').checked = true")
    set_up(page, "7k/1R6/8/8/8/8/R7/7K w - - 0 1")  # A mate that every search finds.
    begin_game(page, here=True)
    for button, left in (("take-it-back", 0), ("play-it", 2)):
        tap(page, "b7g7")
        page.wait(lambda: not page.value("document.getElementById('warning').hidden"))
        press(page, button)
        page.wait(lambda: page.value("document.getElementById('warning').hidden"))
        page.wait(partial(lambda left: len(move_buttons(page)) == left, left))


def test_variation_is_promoted_and_deleted_and_the_graph_grows(page: Page) -> None:
    fill(page, "pgn", GAMES)
    press(page, "load")
    page.wait(lambda: "c5" in moves(page))
    page.value("[...document.querySelectorAll('.variation button')].at(-1).click()")
    for step, san in (("back", "c5"), ("next", "Nf3")):
        press(page, step)
        page.wait(partial(shows, page, san))
        page.wait(lambda: "nodes" in text_of(page, "figures"))
    page.wait(lambda: page.value("document.getElementById('course').hasAttribute('hidden')") is False)
    press(page, "promote")
    page.wait(lambda: moves(page).startswith("1. e4 c5 ("))
    press(page, "delete")
    page.wait(lambda: moves(page).endswith("2. Nf3 )"))
    assert "Ann" in text_of(page, "below") and "1-0" in text_of(page, "about")


def test_board_is_edited(page: Page) -> None:
    set_up(page, LADDER)
    press(page, "edit")
    fill(page, "piece", "q")
    page.click(*square(page, "d4"))
    page.click(*square(page, "b1"))
    page.value("document.getElementById('mover').value = 'b'")
    fill(page, "piece", "")
    page.click(*square(page, "b1"))
    press(page, "edit")
    page.wait(lambda: page.value("document.getElementById('edit').getAttribute('aria-pressed')") == "false")
    assert page.value("document.getElementById('fen').value").startswith("7k/8/8/8/3q4/8/R7/7K b - - 0 1")


@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_a_phone(page: Page, server: Web, dark: bool) -> None:
    show(page, server.url, width=390, dark=dark)
    for tab in ("analyse", "play", "review"):
        press(page, f"tab-{tab}")
        assert page.value("document.documentElement.scrollWidth") <= 390
    tap(page, "e2e4")
    page.wait(lambda: "e4" in moves(page))


def test_search_survives_a_restart_and_ends_with_its_tab(tmp_path: Path) -> None:
    def searching(server: Web) -> bool:
        return b"wavefront_analysis_searching_positions 1.0" in server.get("/metrics").body

    with browsing(tmp_path) as page:
        with web() as first:
            show(page, first.url)
            assert searching(first)
            port = int(first.url.rstrip("/").rpartition(":")[2])
        page.wait(lambda: "trying again" in text_of(page, "state"))
        with web(port=port) as second:
            page.wait(lambda: searching(second) and text_of(page, "state") == "")
            page.call("Page.navigate", url="about:blank")
            page.wait(lambda: not searching(second))


def test_every_operation_can_be_tried_on_its_page(page: Page, server: Web) -> None:
    page.open(f"{server.url}docs", width=900)
    described = server.get("/openapi.json").data["paths"]
    operations = sum(len(methods) for methods in described.values())
    page.wait(lambda: count(page, "section") == operations)
    page.value("document.querySelector('section button').click()")
    page.wait(lambda: str(page.value("document.querySelector('section pre').innerText")).startswith("200"))


def test_page_takes_its_token_from_the_link(tmp_path: Path) -> None:
    file, token = tmp_path / "tokens", "a-token-of-24-characters"
    file.touch(0o600)
    file.write_text(f"ann {token}\n")
    with web("--token-file", str(file)) as server, browsing(tmp_path) as page:
        show(page, f"{server.url}#token={token}")
        assert token not in str(page.value("location.href"))
        assert page.problems == []


def test_file_of_another_encoding_is_read_as_the_command_reads_it(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "games.pgn.gz"
    path.write_bytes(gzip.compress('[White "J\xe4ger"]\n\n1. e4 { sch\xf6n } e5 *\n'.encode("latin-1")))
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#pgn-file")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])
    page.wait(lambda: "schön" in moves(page))
    assert "Jäger" in str(page.value("document.getElementById('pgn').value"))
