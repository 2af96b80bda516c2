# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the parts of YAML and of protocol buffers' text format that lc0's training configurations use.

YAML: mappings and lists of scalars, by indentation. Text format: fields, messages, lists, repeated fields.
Both are returned as dicts, lists and scalars.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from training.errors import TrainingError

TOKEN = re.compile(r"\s+|#[^\n]*|(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|([A-Za-z_][\w./]*)|([-+.\w]+)|(.)")
YAML_SUFFIXES = (".yaml", ".yml")
KEY = re.compile(r"^([\w .-]+?)\s*:(?:\s+(.*)|)$")


class DocumentError(ValueError):
    """An unsupported or invalid document. The message names the line."""


def read_document(path: Path) -> dict[str, Any]:
    """Read the configuration in a .yaml, .yml, .textproto, .pbtxt or .txt file. Raises TrainingError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise TrainingError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrainingError(f"{path} is not text") from None
    try:
        return parse_yaml(text) if path.suffix in YAML_SUFFIXES else parse_textproto(text)
    except DocumentError as error:
        raise TrainingError(f"{path}, {error}") from None


def parse_yaml(text: str) -> dict[str, Any]:
    """Parse YAML. Raises DocumentError."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = _without_comment(line).rstrip()
        if not stripped.strip() or stripped.startswith(("%", "---", "...")):
            continue
        if "\t" in stripped[: len(stripped) - len(stripped.lstrip())]:
            raise DocumentError(f"line {number}: a tab where spaces are needed")
        lines.append((number, len(stripped) - len(stripped.lstrip()), stripped.strip()))
    value, rest = _yaml_block(lines, 0, lines[0][1] if lines else 0)
    if rest < len(lines):
        raise DocumentError(f"line {lines[rest][0]}: not understood: {lines[rest][2]:.40}")
    if not isinstance(value, dict):
        raise DocumentError("line 1: keys and values are needed")
    return value


def _yaml_block(lines: list[tuple[int, int, str]], at: int, indent: int) -> tuple[Any, int]:
    """Return the mapping or list of lines with this indentation, and the index after it."""
    mapping: dict[str, Any] = {}
    items: list[Any] = []
    listing = at < len(lines) and _is_item(lines[at][2])
    # A list may have the same indentation as its key.
    while at < len(lines) and lines[at][1] == indent and _is_item(lines[at][2]) == listing:
        number, _, text = lines[at]
        at += 1
        if listing:
            items.append(_scalar(text[1:].strip()))
            continue
        match = KEY.match(text)
        if match is None:
            raise DocumentError(f"line {number}: not understood: {text:.40}")
        key, value = match[1], match[2]
        if key in mapping:
            raise DocumentError(f"line {number}: {key} is there twice")
        if value:
            mapping[key] = _scalar(value)
        elif at < len(lines) and (lines[at][1] > indent or _is_item(lines[at][2])):
            mapping[key], at = _yaml_block(lines, at, lines[at][1])
        else:
            mapping[key] = None
    return (items if listing else mapping), at


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


def _scalar(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip()
        return [_scalar(item.strip()) for item in inside.split(",")] if inside else []
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    lower = text.lower()
    if lower in ("true", "yes", "on", "false", "no", "off"):
        return lower in ("true", "yes", "on")
    if lower in ("null", "~", ""):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_textproto(text: str) -> dict[str, Any]:
    """Parse the text format; a repeated field becomes a list. Raises DocumentError."""
    tokens = []
    for match in TOKEN.finditer(text):
        if match.lastindex is not None:
            tokens.append((text.count("\n", 0, match.start()) + 1, match[0]))
    message, at = _message(tokens, 0, "")
    if at < len(tokens):
        raise DocumentError(f"line {tokens[at][0]}: {tokens[at][1]} closes nothing")
    return message


def _message(tokens: list[tuple[int, str]], at: int, end: str) -> tuple[dict[str, Any], int]:
    message: dict[str, Any] = {}
    while at < len(tokens) and tokens[at][1] not in ("}", ">"):
        line, name = tokens[at]
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise DocumentError(f"line {line}: the name of a field is needed, not {name:.20}")
        at += 1
        has_colon = _token(tokens, at) == ":"
        at += has_colon
        opened = _token(tokens, at)
        value: Any
        if opened in ("{", "<"):
            value, at = _message(tokens, at + 1, "}" if opened == "{" else ">")
        elif not has_colon:
            raise DocumentError(f"line {line}: {name} has no value")
        elif opened == "[":
            value, at = [], at + 1
            while (item := _token(tokens, at)) not in ("]", ""):
                if item != ",":
                    value.append(_text_scalar(item))
                at += 1
            at += 1
        elif opened == "":
            raise DocumentError(f"line {line}: {name} has no value")
        else:
            value, at = _text_scalar(opened), at + 1
            while _token(tokens, at)[:1] in ("'", '"') and isinstance(value, str):
                value, at = value + str(_text_scalar(_token(tokens, at))), at + 1
        if _token(tokens, at) in (",", ";"):
            at += 1
        if name in message:
            earlier = message[name] if isinstance(message[name], list) else [message[name]]
            message[name] = earlier + (value if isinstance(value, list) else [value])
        else:
            message[name] = value
    if end and _token(tokens, at) != end:
        raise DocumentError(f"line {tokens[-1][0]}: {end} is missing")
    return message, at + bool(end)


def _token(tokens: list[tuple[int, str]], at: int) -> str:
    return tokens[at][1] if at < len(tokens) else ""


def _text_scalar(token: str) -> Any:
    if token[:1] in ("'", '"'):
        return token[1:-1].replace("\\" + token[0], token[0]).replace("\\\\", "\\")
    if token in ("true", "false"):
        return token == "true"
    return _scalar(token)
