# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as one source of connections."""

import pytest

from protocol.common.http.sources import source_of


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
