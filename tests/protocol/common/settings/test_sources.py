# SPDX-License-Identifier: GPL-3.0-or-later
"""TOML files of settings."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.common.settings.sources import read_document, read_toml, toml_text
from protocol.common.settings.spec import SettingsError, SettingsGroup, setting, settings_of


@dataclass(frozen=True, slots=True)
class Lamp(SettingsGroup):
    colour: str = setting("white", "its colour", section="light")
    watts: float = setting(7.0, "its power")
    rooms: tuple[str, ...] = setting(("hall",), "where it hangs", section="use")


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbfgames = 3\r\n")
    assert read_document(path) == {"games": 3}


def test_files_that_are_no_toml_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("games = = 3", "utf-8")
    with pytest.raises(SettingsError, match=r"bad\.toml is not TOML"):
        read_document(path)
    with pytest.raises(SettingsError, match=r"cannot read .*nowhere\.toml"):
        read_document(tmp_path / "nowhere.toml")


def test_a_file_shows_every_default_and_is_read_back(tmp_path: Path) -> None:
    text = toml_text(settings_of(Lamp).values(), ["A lamp."], lambda declared: [declared.help])
    assert text == (
        '# A lamp.\n\n[light]\n# its colour\ncolour = "white"\n# its power\nwatts = 7.0\n'
        '\n[use]\n# where it hangs\nrooms = ["hall"]\n'
    )
    path = tmp_path / "lamp.toml"
    path.write_text(text, "utf-8")
    assert read_toml(path, Lamp(colour="red", watts=2.0, rooms=("attic",))) == Lamp()


def test_settings_keep_their_value_when_absent_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lamp.toml"
    path.write_text("watts = 3", "utf-8")
    assert read_toml(path, Lamp(colour="red")) == Lamp(colour="red", watts=3.0)
