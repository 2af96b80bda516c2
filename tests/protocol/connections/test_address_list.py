# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of evaluators' addresses: protocol.connections.address_list, and the option that takes one."""

import pytest

from engine.options import OptionError, Options
from protocol.common.settings.spec import SettingsError
from protocol.connections.address_list import parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("", ()),
        ("  ", ()),
        ("tcp://a:5577", ("tcp://a:5577",)),
        ("tcp://a:5577,tcp://b:5577", ("tcp://a:5577", "tcp://b:5577")),
        (" tcp://10.0.0.7:1 , ipc:///run/x ", ("tcp://10.0.0.7:1", "ipc:///run/x")),
        ("tcp://[::1]:5577,tcp://[fe80::1%eth0]:65535", ("tcp://[::1]:5577", "tcp://[fe80::1%eth0]:65535")),
        ("tcp://a:5577#Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", ("tcp://a:5577#Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",)),
    ],
)  # fmt: skip
def test_addresses_are_taken_one_by_one(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a:5577", "'a:5577' is no address of an evaluator: tcp://HOST:PORT"),
        ("tcp://a", "'tcp://a' is no address"),
        ("tcp://a:5577,b:5577", "'b:5577' is no address"),
        ("tcp://::1:5577", r"'tcp://::1:5577' is no address .*tcp://\[IPV6\]:PORT"),
        ("tcp://a:5577 tcp://b:5577", "with commas between"),
        ("http://a:80", "'http://a:80' is no address"),
        ("tcp://a:0", "a port is from 1 to 65535"),
        ("tcp://a:70000", "a port is from 1 to 65535"),
        ("ipc://", "names no path"),
        ("tcp://a:5577,", "missing beside a comma"),
        ("tcp://a:5577,,tcp://b:5577", "missing beside a comma"),
        ("tcp://a:5577, tcp://a:5577", "'tcp://a:5577' is named twice"),
    ],
)
def test_address_list_error_names_the_entry(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        parse_addresses(text)


def test_the_option_takes_a_list_and_says_what_is_wrong_with_one() -> None:
    assert Options().with_uci("Evaluator", "tcp://a:1,ipc:///x").evaluator == "tcp://a:1,ipc:///x"
    with pytest.raises(OptionError, match="Evaluator: 'b'"):
        Options().with_uci("Evaluator", "tcp://a:1,b")
