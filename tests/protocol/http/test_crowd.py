# SPDX-License-Identifier: GPL-3.0-or-later
"""Which silent connection of an HTTP server makes room for another one."""

from __future__ import annotations

import pytest

from protocol.http.crowd import Crowd, source_of


def test_a_source_has_a_quarter_of_the_places() -> None:
    crowd: Crowd[int] = Crowd(8)
    for number in range(2):
        assert crowd.displaced_by("a") is None
        crowd.add(number, "a")
    assert crowd.displaced_by("a") == 0
    assert crowd.displaced_by("b") is None


def test_the_oldest_of_the_source_with_the_most_makes_room_when_all_places_are_taken() -> None:
    crowd: Crowd[int] = Crowd(4)
    for number, source in enumerate("abcd"):
        crowd.add(number, source)
    assert crowd.displaced_by("e") == 0
    crowd.add(4, "c")
    assert crowd.displaced_by("e") == 2
    assert crowd.remove(2) and not crowd.remove(2)
    assert (crowd.victim(), len(crowd)) == (0, 4)


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::"),
    ],
)
def test_an_ipv6_network_is_one_source(host: str, source: str) -> None:
    assert source_of(host) == source
