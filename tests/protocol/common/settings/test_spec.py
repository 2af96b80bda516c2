# SPDX-License-Identifier: GPL-3.0-or-later
"""How settings are declared and checked, whoever has them."""

from dataclasses import dataclass

import pytest

from protocol.common.settings.spec import UNREACHED, SettingsError, SettingsGroup, setting, settings_of


@dataclass(frozen=True, slots=True)
class Kitchen(SettingsGroup):
    noun = "knob"

    cook: str = setting("", section="people")
    helpers: tuple[str, ...] = setting((), low=1)
    ovens: tuple[str, ...] = setting(("gas",))
    mode: str = setting("slow", choices=("slow", "Fast"), section="work")
    hot: bool = setting(True)
    plates: int = setting(4, title="Plates", low=1, high=24)
    minutes: float = setting(10.0, high=UNREACHED)
    burners: int = setting(0, high=8, zero="auto")
    grams: float = setting(1.0)


def test_a_section_begins_with_a_setting_and_holds_for_the_next_ones() -> None:
    sections = [declared.section for declared in settings_of(Kitchen).values()]
    assert sections == ["people"] * 3 + ["work"] * 6


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("cook", "Jo", "Jo"),
        ("cook", "<empty>", ""),
        ("helpers", "Al", ("Al",)),
        ("helpers", ["Al", "Bo"], ("Al", "Bo")),
        ("mode", "FAST", "Fast"),
        ("hot", "off", False),
        ("hot", "Yes", True),
        ("plates", " 7 ", 7),
        ("plates", "1e1", 10),
        ("plates", 7.0, 7),
        ("minutes", "2", 2.0),
        ("minutes", 3, 3.0),
        ("burners", "auto", 0),
        ("burners", "3", 3),
    ],
)
def test_a_text_stands_for_a_value(name: str, given: object, value: object) -> None:
    found = getattr(Kitchen().parsed({name: given}), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("cook", 3, "cook is a text, not 3"),
        ("cook", "a\0b", "cook is a text without NUL, not "),
        ("helpers", ["a\0b"], "helpers is a list of texts, none of them empty, not "),
        ("mode", "Fa\0st", "mode is one of slow, Fast, not "),
        ("helpers", [""], r"helpers is a list of texts, none of them empty, not \[''\]"),
        ("ovens", [], r"ovens is a list of at least one text, not \[\]"),
        ("mode", "idle", "mode is one of slow, Fast, not 'idle'"),
        ("hot", 1, "hot is true or false, not 1"),
        ("hot", "perhaps", "hot is true or false, not 'perhaps'"),
        ("plates", 0, "Plates is a whole number from 1 to 24, not 0"),
        ("plates", 1.5, "Plates is a whole number from 1 to 24, not 1.5"),
        ("plates", True, "Plates is a whole number from 1 to 24, not true"),
        ("minutes", "nan", "minutes is a number from 0 on, not 'nan'"),
        ("minutes", float("inf"), "minutes is a number from 0 on, not inf"),
        ("minutes", 2 * UNREACHED, "minutes is a number from 0 to 1,000,000,000, not 2000000000"),
        ("grams", float("inf"), "grams is a number from 0 on, not inf"),
        ("grams", 10**400, "grams is a number from 0 on, not 1000"),
        ("burners", "many", "burners is auto or a whole number from 0 to 8, not 'many'"),
        ("cook", ["x" * 100], "cook is a text, not .{57}…$"),
        ("plate", 1, "no such knob: 'plate'; did you mean 'plates'"),
        ("xyz", 1, "no such knob: 'xyz' .known are cook, helpers, .*burners, grams."),
    ],
)
def test_setting_error_names_the_accepted_range(name: str, given: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Kitchen().parsed({name: given})


def test_values_that_are_no_texts_are_not_read_from_texts() -> None:
    assert Kitchen().changed(plates=5).plates == 5
    with pytest.raises(SettingsError, match="Plates "):
        Kitchen().changed(plates="5")
