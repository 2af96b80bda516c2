# SPDX-License-Identifier: GPL-3.0-or-later
"""UCI text to plain data."""

import math
import os
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.search.limits import DEFAULT_MS, Clock, Limits
from engine.uci.parse import (
    CommandError,
    PositionCommand,
    complete_clock,
    parse_go,
    parse_position,
    parse_setoption,
    read_lines,
    shown,
    whole_number,
)


def go(text: str) -> tuple[Limits, list[str]]:
    return parse_go(text.split())


def setoption(text: str) -> tuple[str, str]:
    return parse_setoption(text.split())


WORDS = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            [
                *("startpos", "fen", "moves", "e2e4", "wtime", "btime", "winc", "movestogo", "movetime"),
                *("nodes", "depth", "mate", "infinite", "ponder", "searchmoves", "name", "value"),
                *("-1", "0", "9" * 30, "1e5", "2.5", "1e-9", "1e999999"),
            ]
        ),
    ),
    max_size=12,
)


def test_a_full_go_is_understood() -> None:
    limits, complaints = go(
        "ponder wtime 1000 btime 2000 winc 10 binc 20 movestogo 5 searchmoves e2e4 d2d4 nodes 7"
    )
    assert complaints == []
    assert limits == Limits(
        clock=Clock(1000, 2000, 10, 20, 5), nodes=7, ponder=True, search_moves=("e2e4", "d2d4")
    )


@pytest.mark.parametrize("text", ["", "infinite", "ponder", "infinite nodes 5", "searchmoves e2e4"])
def test_without_a_limit_only_stop_ends_a_search(text: str) -> None:
    assert parse_go(text.split())[0].unbounded


def test_a_bad_argument_is_reported_and_the_rest_counts() -> None:
    limits, complaints = go("nodes x depth -3 movetime 50 sideways")
    assert limits == Limits(movetime_ms=50)
    assert len(complaints) == 3
    assert "nodes" in complaints[0] and "depth" in complaints[1] and "sideways" in complaints[2]


def test_a_missing_number_does_not_swallow_the_next_argument() -> None:
    limits, complaints = go("wtime movetime 50")
    assert limits == Limits(movetime_ms=50)
    assert len(complaints) == 1


def test_a_clock_below_zero_is_a_clock() -> None:
    limits, complaints = go("wtime -20 btime 100")
    assert complaints == []
    assert limits.clock == Clock(-20, 100)


@pytest.mark.parametrize(
    ("text", "number"),
    [("280", 280), ("280.5", 280), ("280,5", 280), ("2.8e2", 280), ("2.8E+2", 280), ("280ms", 280), ("+5", 5),
     ("-0.5", -1), ("0.9", 0), ("1e-3", 0), ("1e400", 10**12), ("-1e999999", -(10**12)), ("9" * 400, 10**12),
     ("1e-999999", 0), ("", None), ("abc", None), ("NaN", None), ("inf", None), (".5", None), ("-", None)],
)  # fmt: skip
def test_a_number_is_read_as_the_nearest_whole_number_below(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**11), max_value=10**11))
def test_a_number_never_grows_when_it_is_read(number: Decimal) -> None:
    for text in (str(number), f"{number:f}", f"{number:e}"):
        assert whole_number(text) == math.floor(number)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("wtime 250.0 btime 3e4", Limits(clock=Clock(250, 30000))),
        ("movetime 80.5", Limits(movetime_ms=80)),
        ("nodes 0.5", Limits(nodes=1)),
        ("wtime 1000 btime 1000 winc 10.9", Limits(clock=Clock(1000, 1000, 10))),
    ],
)
def test_a_number_with_a_fraction_or_an_exponent_stays_a_limit(text: str, limits: Limits) -> None:
    found, complaints = go(text)
    assert found == limits
    assert complaints


@pytest.mark.parametrize(
    "text", ["movetime abc", "movetime NaN nodes 1000000", "wtime ? btime ?", "wtime x nodes 9"]
)
def test_an_unreadable_time_limits_the_search_all_the_same(text: str) -> None:
    limits, complaints = go(text)
    assert limits.movetime_ms == DEFAULT_MS
    assert complaints


def test_unknown_clock_is_at_most_the_other_one() -> None:
    limits, _ = go("wtime NaN btime 60000")
    completed, complaints = complete_clock(limits, "white")
    assert completed == Limits(clock=Clock(60000, 60000), movetime_ms=DEFAULT_MS)
    assert "wtime" in complaints[0]
    assert complete_clock(limits, "black") == (limits, [])


def test_option_names_and_values_may_have_spaces() -> None:
    assert setoption("name Clear Tree") == ("Clear Tree", "")
    assert setoption("name A b value c d") == ("A b", "c d")


@pytest.mark.parametrize("text", ["", "x", "name", "name value 3", "value 3"])
def test_setoption_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="setoption"):
        parse_setoption(text.split())


def test_position_is_a_fen_and_moves() -> None:
    fen = "8/8/8/8/8/4k3/8/4K3 w - - 0 1"
    assert parse_position(f"fen {fen} moves e1d1".split()) == PositionCommand(fen, ("e1d1",))
    assert parse_position(["startpos"]) == PositionCommand(None, ())


@pytest.mark.parametrize("text", ["", "fen", "fen moves e2e4", "startpos e2e4", "8/8/8/8"])
def test_a_position_without_a_beginning_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="position"):
        parse_position(text.split())


@given(WORDS)
def test_no_words_break_the_parsers(words: list[str]) -> None:
    parse_go(words)
    for parser in (parse_position, parse_setoption):
        try:
            parser(words)
        except CommandError as error:
            assert str(error)


def lines_of(data: bytes) -> list[str | CommandError]:
    reader, writer = os.pipe()
    try:
        os.write(writer, data)
        os.close(writer)
        return list(read_lines(reader))
    finally:
        os.close(reader)


def test_any_line_end_and_a_missing_last_one_will_do() -> None:
    assert lines_of(b"uci\r\nisready\n\n\r\n go  \rstop") == ["uci", "isready", "go", "stop"]


@given(st.binary(max_size=2000))
def test_any_bytes_are_lines(data: bytes) -> None:
    for line in lines_of(data):
        assert isinstance(line, str) and line == line.strip() != ""


@given(st.text())
def test_shown_text_is_short_and_printable(text: str) -> None:
    assert shown(text).isprintable()
    assert len(shown(text)) <= 81
