# SPDX-License-Identifier: GPL-3.0-or-later
"""One order for the queues of all networks."""

from itertools import count

import pytest

from evaluator.scheduling.fair_queue import MOST_TAGS, Turns
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Order, Scheduler
from tests.evaluator.scheduling.test_scheduler import request


def networks(number: int = 2) -> list[Scheduler]:
    order = Order()
    return [Scheduler(order) for _ in range(number)]


def served(queues: list[Scheduler], batches: int, size: int) -> list[Request]:
    """The requests of a number of batches, each of the network whose turn it is."""
    taken: list[Request] = []
    for _ in range(batches):
        waiting = [(queue.urgency(), index) for index, queue in enumerate(queues) if queue.positions]
        if not waiting:
            break
        _, index = min(waiting, key=lambda each: (each[0] or (0, (0.0, 0, 0.0)), each[1]))
        segments = queues[index].take(size, 0.0)
        queues[index].ran(1.0, segments)
        taken += [segment.request for segment in segments]
    return taken


@pytest.mark.parametrize("network", [0, 1])
@pytest.mark.parametrize("clients", [1, 40])
def test_player_is_served_next_whatever_networks_floods_use(network: int, clients: int) -> None:
    queues = networks()
    for identity in range(16 * clients):
        queues[0].add(request(str(identity % clients), identity, count=256))
    served(queues, batches=4, size=256)
    player = request("player", 1000, count=1)
    queues[network].add(player)
    assert player in served(queues, batches=1 + (clients == 1), size=256)


def test_connections_of_a_payer_share_its_turns() -> None:
    queues = networks()
    queued = dict.fromkeys(range(40), 0)

    def refill() -> None:  # Each of 40 connections keeps two requests queued.
        for client, waiting in queued.items():
            for _ in range(2 - waiting):
                each = request(str(client), next(identities), count=16)
                each.payer = "key"
                queues[client % 2].add(each)
                queued[client] += 1

    identities, waits = count(), list[int]()
    for _ in range(200):
        refill()
        player = request("player", next(identities), count=1)
        queues[1].add(player)
        waits.append(0)
        while player.taken == 0:
            for each in served(queues, batches=1, size=16):
                if each.payer == "key" and each.taken == each.count:
                    queued[int(str(each.client))] -= 1
            waits[-1] += 1
            refill()
    assert sum(waits[20:]) / len(waits[20:]) < 4, "batches until the player's, of some 80 queued"


def test_class_of_one_network_goes_before_a_lower_class_of_another() -> None:
    queues = networks()
    queues[0].add(request("1", 1, count=8, rank=2, arrived=0.0))
    play = request("2", 2, count=8, rank=0, arrived=5.0)
    queues[1].add(play)
    assert served(queues, batches=1, size=8) == [play]


def test_a_class_is_owed_time_for_what_other_networks_use() -> None:
    queues = networks()
    waiting = request("1", 1, count=1, rank=2)
    queues[0].add(waiting)
    for identity in range(200):
        queues[1].add(request("2", identity, count=8))
    taken = served(queues, batches=200, size=8)
    assert waiting in taken[:-1]


def test_batch_of_a_higher_class_leaves_others_a_share_when_filled() -> None:
    """After a reload the former network has self-play left, and the new one has analysis and self-play."""
    former, new = queues = networks()
    for identity in range(10):
        former.add(request("a", identity, count=8, rank=2))
    for identity in range(1000, 3000, 2):
        new.add(request("b", identity, count=8, rank=1))
        if len(new) < 20:
            new.add(request("c", identity + 1, count=8, rank=2))
        served(queues, batches=1, size=16)
        if not len(former):
            return
    pytest.fail("in 1,000 batches the former network was not served")


def test_tags_of_endless_payers_are_bounded() -> None:
    turns = Turns()
    for client in range(3 * MOST_TAGS):
        turns.give_place(request(str(client), client, count=1))
    assert len(turns._finish_tags) <= MOST_TAGS
    assert turns.tag_of(request(str(3 * MOST_TAGS - 1), 0, count=1)) > 1
