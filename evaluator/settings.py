"""One table of every setting of the service: name, type, default and help.

The flags of `python -m evaluator serve`, the file that `--config` reads and configs/evaluator.toml are all
made from it. A flag beats the file, the file beats the default.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal


class SettingsError(Exception):
    """A setting is wrong. The message names it and says what it may be."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. kind "list" is a list of text, given as a repeated flag. lowest bounds numbers."""

    name: str
    kind: Literal["text", "integer", "number", "boolean", "list"]
    default: Any
    help: str
    metavar: str = ""
    lowest: float = 0
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "network",
        "list",
        [],
        "lc0 network file to serve; repeat for several, the first is the default one. Without any, the "
        "network that comes with the program",
        "FILE",
    ),
    Setting(
        "policy_head", "text", "", "policy head of the networks; empty for the file's own choice", "NAME"
    ),
    Setting("value_head", "text", "", "value head of the networks; empty for the file's own choice", "NAME"),
    Setting(
        "backend",
        "list",
        ["auto"],
        "what runs the networks, as NAME or NAME:option=value,option=value; repeat for several devices "
        "side by side",
        "NAME",
    ),
    Setting("threads", "integer", 0, "CPU threads of a backend; 0 lets it choose", "N"),
    Setting(
        "address",
        "list",
        [],
        "where to listen, as tcp://HOST:PORT or ipc://PATH; repeat for several. Without any, this user's "
        "well-known ipc socket and tcp://127.0.0.1:5577",
        "ADDRESS",
    ),
    Setting("max_request", "integer", 4096, "most positions in one request", "POSITIONS", 1),
    Setting("max_queue", "integer", 65536, "most positions queued per network", "POSITIONS", 1),
    Setting(
        "max_client_queue", "integer", 32768, "most positions queued or running per client", "POSITIONS", 1
    ),
    Setting("play_latency_ms", "number", 50.0, "latency to keep for requests of class play", "MS", 0.1),
    Setting(
        "analysis_latency_ms", "number", 200.0, "latency to keep for requests of class analysis", "MS", 0.1
    ),
    Setting(
        "selfplay_latency_ms", "number", 1000.0, "latency to keep for requests of class self-play", "MS", 0.1
    ),
    Setting(
        "calibration_s",
        "number",
        0.4,
        "seconds to measure a latency curve in, where none is cached",
        "S",
        0.01,
    ),
    Setting("latency_cache", "boolean", True, "keep measured latency curves in the user's cache folder"),
    Setting(
        "remote_admin",
        "boolean",
        False,
        "allow load, unload and drain from other machines too, not only from this one",
    ),
    Setting(
        "metrics_port",
        "integer",
        0,
        "port on 127.0.0.1 for Prometheus (/metrics) and health checks (/live, /ready); 0 for none",
        "PORT",
    ),
    Setting(
        "log_level",
        "text",
        "info",
        "what is written to stderr",
        choices=("debug", "info", "warning", "error"),
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked values of SETTINGS."""

    network: tuple[str, ...]
    policy_head: str
    value_head: str
    backend: tuple[str, ...]
    threads: int
    address: tuple[str, ...]
    max_request: int
    max_queue: int
    max_client_queue: int
    play_latency_ms: float
    analysis_latency_ms: float
    selfplay_latency_ms: float
    calibration_s: float
    latency_cache: bool
    remote_admin: bool
    metrics_port: int
    log_level: str


assert [setting.name for setting in SETTINGS] == [field.name for field in fields(Settings)]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give a parser --config and a flag for every setting."""
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with settings (see configs/evaluator.toml); flags beat it"
    )
    for setting in SETTINGS:
        text = f"{setting.help} (default: {_shown(setting)})"
        options: dict[str, Any] = {"default": None, "help": text.replace("%", "%%")}
        if setting.kind == "boolean":
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = setting.metavar or "|".join(setting.choices) or "TEXT"
            if setting.kind == "list":
                options["action"] = "append"
        parser.add_argument(setting.flag, dest=setting.name, **options)


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """The settings of a parsed command line and the file it names. Raises SettingsError."""
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    if arguments.config:
        values.update(read_file(Path(arguments.config)))
    for setting in SETTINGS:
        given = getattr(arguments, setting.name)
        if given is not None:
            values[setting.name] = _parsed(setting, given)
    frozen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Settings(**frozen)


def read_file(path: Path) -> dict[str, Any]:
    """The settings that a TOML file gives. Raises SettingsError."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    known = {setting.name: setting for setting in SETTINGS}
    for name in content:
        if name not in known:
            raise SettingsError(f"{path}: unknown setting {name!r}; there is: {', '.join(known)}")
    try:
        return {name: _checked(known[name], value) for name, value in content.items()}
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def toml() -> str:
    """configs/evaluator.toml: every setting with its default, commented."""
    lines = [
        "# Settings of the evaluator, each with its default.",
        "# Use: python -m evaluator serve --config configs/evaluator.toml",
    ]
    for setting in SETTINGS:
        lines.append("")
        text = setting.help[0].upper() + setting.help[1:] + "."
        if setting.choices:
            text += f" One of: {', '.join(setting.choices)}."
        lines += [f"# {line}" for line in textwrap.wrap(text, 105)]
        lines.append(f"{setting.name} = {json.dumps(setting.default)}")
    return "\n".join(lines) + "\n"


def _shown(setting: Setting) -> str:
    if isinstance(setting.default, list):
        return ", ".join(setting.default) or "none"
    return json.dumps(setting.default) if setting.default != "" else "empty"


def _parsed(setting: Setting, text: Any) -> Any:
    """A value from the command line, where numbers still are text."""
    try:
        if setting.kind == "integer":
            text = int(text)
        elif setting.kind == "number":
            text = float(text)
    except ValueError:
        pass  # said properly below
    try:
        return _checked(setting, text)
    except SettingsError as error:
        raise SettingsError(str(error).replace(setting.name, setting.flag, 1)) from None


def _checked(setting: Setting, value: Any) -> Any:
    wrong = SettingsError(f"{setting.name}: {value!r} is not {_wanted(setting)}")
    if setting.kind in ("integer", "number"):
        kinds: tuple[type, ...] = (int,) if setting.kind == "integer" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise wrong
        assert isinstance(value, int | float)
        if not setting.lowest <= value < math.inf or (setting.name == "metrics_port" and value > 65535):
            raise wrong
        return value
    if setting.kind == "boolean":
        if not isinstance(value, bool):
            raise wrong
    elif setting.kind == "list":
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise wrong
        if setting.default and not value:
            raise wrong
    elif not isinstance(value, str) or (setting.choices and value not in setting.choices):
        raise wrong
    return value


def _wanted(setting: Setting) -> str:
    if setting.choices:
        return f"one of {', '.join(setting.choices)}"
    lowest = f"{setting.lowest:g}"
    return {
        "integer": f"an integer of at least {lowest}" + (", at most 65535" if "port" in setting.name else ""),
        "number": f"a number of at least {lowest}",
        "boolean": "true or false",
        "list": "a list of text",
        "text": "text",
    }[setting.kind]
