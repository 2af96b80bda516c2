# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose position is begun next, and which of a client's."""

from engine.apps.analysis.clients import MOST_WITHDRAWN, ClientTasks, QueryState, Task, next_client
from engine.apps.analysis.query import read_query
from engine.options import Options

QUERY, _ = read_query({"id": "a", "moves": ["e2e4", "e7e5"], "analyze_turns": [0, 1, 2]}, "a", Options(), 1)


class SilentClient:
    def __init__(self, congested: bool = False, owner: str = "") -> None:
        self.congested, self.owner = congested, owner or f"{id(self)}"

    def send(self, answer: bytes) -> None: ...

    def done(self) -> None: ...


def account(
    waiting: int, running: int, served: int = 0, congested: bool = False, owner: str = ""
) -> ClientTasks:
    made = ClientTasks(SilentClient(congested, owner), served=served)
    for number in range(waiting):
        made.waiting.add(Task(made, QueryState(QUERY), 0, 0, number))
    made.running.update(Task(made, QueryState(QUERY), 0, 0, number) for number in range(running))
    return made


def test_the_highest_priority_comes_first_and_then_the_earliest() -> None:
    mine = account(0, 0)
    for number, priority in enumerate((0, 5, -3, 5, 0)):
        mine.waiting.add(Task(mine, QueryState(QUERY), 0, priority, number))
    assert [mine.waiting.take().number for _ in range(5)] == [1, 3, 0, 4, 2]


def test_withdrawn_positions_are_named_by_query_and_turn() -> None:
    mine = account(0, 0)
    for turn in QUERY.turns:
        mine.waiting.add(Task(mine, QueryState(QUERY), turn, 0, turn))
    assert mine.waiting.withdraw("b") == []
    assert [task.turn for task in mine.waiting.withdraw("a", lambda task: task.turn == 1)] == [1]
    assert [task.turn for task in mine.waiting.withdraw()] == [0, 2]
    assert len(mine.waiting) == 0


def test_query_is_neither_started_nor_kept_when_withdrawn() -> None:
    mine = account(0, 0)
    other, _ = read_query({"id": "b"}, "b", Options(), 1)
    mine.waiting.add(Task(mine, QueryState(other), 0, 0, -1))
    for number in range(3 * MOST_WITHDRAWN):
        mine.waiting.add(Task(mine, QueryState(QUERY), number % 3, 0, number))
        if number % 3:
            mine.waiting.withdraw("a", lambda task: task.turn != 0)
        assert len(mine.waiting._heap) <= 2 * len(mine.waiting) + MOST_WITHDRAWN
    assert len(mine.waiting) == MOST_WITHDRAWN + 1
    begun = [mine.waiting.take() for _ in range(MOST_WITHDRAWN + 1)]
    assert [task.query.id for task in begun] == ["b"] + ["a"] * MOST_WITHDRAWN
    assert [task.number for task in begun] == [-1, *range(0, 3 * MOST_WITHDRAWN, 3)]
    assert mine.waiting.bytes == 0


def test_free_id_is_found_without_a_scan_of_all() -> None:
    mine = account(1000, 0)

    def is_meant(task: Task) -> bool:
        raise AssertionError("this one has another id")

    assert mine.waiting.withdraw("b", is_meant) == []


def test_the_client_with_the_fewest_in_flight_is_served_next() -> None:
    busy, idle = account(100, 3), account(1, 1)
    assert next_client([busy, idle], has_slot=True, most=9) is idle


def test_equals_take_turns() -> None:
    lately, long_ago = account(1, 2, served=9), account(1, 2, served=4)
    assert next_client([lately, long_ago], has_slot=True, most=9) is long_ago


def test_owner_of_many_clients_has_one_turn() -> None:
    many = [account(1, int(number < 2), owner="many") for number in range(9)]
    one = account(1, 1, served=1)
    assert next_client([*many, one], has_slot=True, most=9) is one
    assert next_client(many, has_slot=True, most=9) is many[2]


def test_without_room_a_client_gets_its_first_search_all_the_same() -> None:
    busy, new = account(10, 4), account(10, 0)
    assert next_client([busy, new], has_slot=False, most=9) is new
    assert next_client([busy], has_slot=False, most=9) is None


def test_a_client_has_so_many_in_flight_at_most() -> None:
    assert next_client([account(10, 9)], has_slot=True, most=9) is None
    assert next_client([account(10, 8)], has_slot=True, most=9) is not None


def test_unsearched_positions_come_first_in_their_own_room() -> None:
    mine = account(3, 9)
    plain, _ = read_query({"id": "a", "nodes": 0}, "a", Options(), 1)
    task = Task(mine, QueryState(plain), 0, -5, 10)
    mine.waiting.add(task)
    assert next_client([mine], has_slot=True, most=99) is None
    assert next_client([mine], has_slot=False, most=9, evaluates=True) is mine
    assert mine.waiting.take() is task
    assert next_client([mine], has_slot=False, most=9, evaluates=True) is None


def test_nothing_is_begun_for_who_does_not_read() -> None:
    assert next_client([account(5, 0, congested=True), account(0, 0)], has_slot=True, most=9) is None


def test_the_bytes_of_a_query_count_until_nothing_of_it_waits() -> None:
    mine = account(0, 0)
    for size in (100, 1000):
        asked = QueryState(QUERY, size)
        for turn in QUERY.turns:
            mine.waiting.add(Task(mine, asked, turn, 0, size + turn))
    assert mine.waiting.bytes == 1100
    for expected in (1100, 1100, 1000):
        mine.waiting.take()
        assert mine.waiting.bytes == expected
    mine.waiting.withdraw(None, lambda task: task.turn != 0)
    assert mine.waiting.bytes == 1000
    mine.waiting.withdraw()
    assert mine.waiting.bytes == 0
