# SPDX-License-Identifier: GPL-3.0-or-later
"""Where settings come from: TOML files and flags of a command line, made from the settings' declarations.

A flag wins over the file, the file over the default.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from protocol.settings.spec import Setting, SettingsError, SettingsGroup, Value, settings_of

Group = TypeVar("Group", bound=SettingsGroup)


@contextmanager
def source_named(source: object) -> Iterator[None]:
    """Turn a ValueError from inside into a SettingsError that names the file or flag it came from."""
    try:
        yield
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from None


def read_document(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises SettingsError."""
    import tomllib

    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None


def read_toml(path: str | Path, base: Group) -> Group:
    """Settings from a TOML file, on top of `base`. Its tables are for the reader: a key may stand in any.

    Raises SettingsError that names the file.
    """
    values: dict[str, object] = {}
    for key, value in read_document(path).items():
        values.update(value if isinstance(value, Mapping) else {key: value})
    with source_named(path):
        return base.changed(**values)


def toml_text(
    settings: Iterable[Setting], heading: Iterable[str], comment: Callable[[Setting], Iterable[str]]
) -> str:
    """A TOML file that shows every setting at its default.

    heading: the lines it begins with. comment: the lines above a setting. Both without the `#`.
    """
    import json

    lines = [f"# {line}" for line in heading]
    section = ""
    for setting in settings:
        if setting.section != section:
            section = setting.section
            lines += ["", f"[{section}]"]
        elif not section:
            lines.append("")
        lines += [f"# {line}" for line in comment(setting)]
        lines.append(f"{setting.name} = {json.dumps(setting.default)}")
    return "\n".join(lines) + "\n"


def add_flags(
    group: argparse._ActionsContainer,
    settings: Iterable[Setting],
    *,
    show_advanced: bool = True,
    switches: bool = False,
    quotes: bool = False,
    defaults: Mapping[str, Value] | None = None,
    aliases: Mapping[str, Iterable[str]] | None = None,
) -> None:
    """Give a parser, or a group of its flags, one for every setting.

    switches: --flag and --no-flag instead of --flag true and --flag false. quotes: around default texts.
    defaults: those to show for settings that have others than their own. aliases: further flags of a setting,
    by its name; the help does not show them.
    """
    for setting in settings:
        default = setting.text((defaults or {}).get(setting.name, setting.default))
        if quotes and default and isinstance(setting.default, str):
            default = f'"{default}"'
        text = f"{setting.help} (default: {default or ('none' if setting.default == () else 'empty')})"
        choices = "{" + ",".join(setting.choices) + "}" if setting.choices else setting.name.upper()
        options: dict[str, Any] = {"metavar": setting.metavar or choices}
        if isinstance(setting.default, tuple):
            options["action"] = "append"
        elif switches and isinstance(setting.default, bool):
            options = {"action": argparse.BooleanOptionalAction}
        shown = show_advanced or not setting.advanced
        options["help"] = text.replace("%", "%%") if shown else argparse.SUPPRESS
        group.add_argument(setting.flag, dest=f"option_{setting.name}", **options)
        for alias in (aliases or {}).get(setting.name, ()):
            hidden = options | {"help": argparse.SUPPRESS}
            group.add_argument(alias, dest=f"option_{setting.name}", **hidden)


def from_arguments(arguments: argparse.Namespace, base: Group) -> Group:
    """The settings that parsed flags and the file of --config stand for, on top of `base`.

    Raises SettingsError.
    """
    if getattr(arguments, "config", None):
        base = read_toml(arguments.config, base)
    for setting in settings_of(type(base)).values():
        value = getattr(arguments, f"option_{setting.name}", None)
        if value is not None:
            with source_named(setting.flag):
                base = base.parsed({setting.name: value})
    return base
