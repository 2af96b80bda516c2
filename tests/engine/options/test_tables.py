# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of settings on the command line and in files."""

from dataclasses import dataclass

import pytest

from engine.options.tables import Table, merge, parse_pairs, parse_settings
from protocol.common.settings.spec import SettingsError, setting


@dataclass(frozen=True, slots=True)
class Rule:
    moves: int = setting(4, low=1, high=99)
    strict: bool = setting(False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("net.pb.gz,nodes=2", {"": "net.pb.gz", "nodes": "2"}),
        ('args="-a,-b",x=y', {"args": "-a,-b", "x": "y"}),
        ("Skill Level=5,flag", {"Skill Level": "5", "flag": "true"}),
        (r"weights=C:\nets\a.pb.gz", {"weights": r"C:\nets\a.pb.gz"}),
        ("x=a=b", {"x": "a=b"}),
        ("", {}),
    ],
)
def test_tables_on_the_command_line(text: str, expected: dict[str, str]) -> None:
    assert parse_pairs(text, "--player") == expected


def test_an_open_quote_is_named() -> None:
    with pytest.raises(SettingsError, match="--player"):
        parse_pairs('args="x', "--player")


def test_a_key_that_is_given_twice_is_named() -> None:
    with pytest.raises(SettingsError, match="--player: 'nodes=3,cpuct=1,nodes=4'"):
        parse_pairs("nodes=3,cpuct=1,nodes=4", "--player")


def test_a_key_without_a_value_is_true() -> None:
    assert parse_settings("strict,moves=3", "--rule") == {"strict": "true", "moves": "3"}


def test_one_table_is_laid_over_another() -> None:
    base = {"games": 1, "rule": {"moves": 3, "strict": True}}
    merge(base, {"rule": {"moves": 5}, "name": "x"})
    assert base == {"games": 1, "rule": {"moves": 5, "strict": True}, "name": "x"}
    merge(base, {"games": {}, "rule": 3})
    assert base == {"games": 1, "rule": 3, "name": "x"}  # what is no table is left to who reads it


def test_a_rule_holds_where_it_is_written_down_and_not_disabled() -> None:
    root = Table("file", {"on": {"moves": "7"}, "off": {"enabled": False}, "empty": {}})
    assert root.rule("on", Rule) == Rule(moves=7)
    assert root.rule("empty", Rule) == Rule()
    assert root.rule("off", Rule) is None
    assert root.rule("missing", Rule) is None
    assert root.part("missing", Rule) == Rule()
    root.end()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"rule": {"moves": 0}}, r"^file: \[rule\]: moves is a whole number from 1 to 99, not 0$"),
        ({"rule": {"enabled": "perhaps"}}, r"^file: \[rule\]: enabled is true or false"),
        ({"rule": {"enabled": False, "move": 3}}, r"\[rule\]: no such key: 'move'; did you mean 'moves'\?"),
        ({"rule": 3}, r"^file: \[rule\] is a table of key = value, not 3$"),
        ({"rules": {}}, r"^file: no such key: 'rules'; did you mean 'rule'\?"),
        ({"xyz": {}}, r"^file: no such key: 'xyz' \(known are rule\)"),
    ],
)
def test_mistakes_name_table_and_key(entries: dict[str, object], message: str) -> None:
    root = Table("file", entries)
    with pytest.raises(SettingsError, match=message):
        root.rule("rule", Rule)
        root.end()


def test_a_table_in_a_table_is_named_with_both() -> None:
    inner = Table("file: [a]", {"b": {}}).table("b")
    assert inner is not None and inner.source == "file: [a.b]"
