# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of settings: TOML files and command-line flags, derived from the settings' declarations.

A flag overrides the file, the file overrides the default.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from protocol.common.settings.spec import Setting, SettingsError, SettingsGroup, Value, settings_of

Group = TypeVar("Group", bound=SettingsGroup)


@contextmanager
def source_named(source: object) -> Iterator[None]:
    """Turn a ValueError from inside into a SettingsError that names its file or flag."""
    try:
        yield
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from None


def read_document(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises SettingsError."""
    import tomllib

    try:
        # Some editors start a file with a byte order mark.
        return tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None


def read_toml(path: str | Path, base: Group, apart: Collection[str] = ()) -> Group:
    """Return `base` with the settings of a TOML file. A key may be in any table.

    apart: tables without settings. Raises SettingsError that names the file.
    """
    values: dict[str, object] = {}
    for key, value in read_document(path).items():
        if key in apart:
            continue
        values.update(value if isinstance(value, Mapping) else {key: value})
    with source_named(path):
        return base.changed(**values)


def toml_text(
    settings: Iterable[Setting], heading: Iterable[str], comment: Callable[[Setting], Iterable[str]]
) -> str:
    """Return a TOML file with every setting at its default.

    heading: its first lines. comment: the lines above a setting. Both without the `#`.
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
    """Add a flag for every setting to a parser or a group of its flags.

    switches: --flag and --no-flag instead of --flag true and --flag false. quotes: quote default texts.
    defaults: defaults to show instead of the declared ones. aliases: further flags of a setting, by its name;
    hidden from the help.
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
    """Return `base` with the settings of parsed flags and of the file of --config.

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
