# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command of every page is one that the programs accept, and the examples of the first pages run."""

import argparse
import os
import re
import shlex
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engine import cli as engine_cli
from evaluator import cli as evaluator_cli
from protocol.common.commands import module_of
from tests.evaluator.service.harness import running
from tests.paths import REPOSITORY
from tests.programs import ENGINE, python, run
from tests.test_documents import DOCUMENTS, name_of
from training import cli as training_cli

messages, pages = map(import_module, ("scripts.messages", "scripts.page_commands"))
PROGRAMS = {
    "wavefront": (engine_cli, "engine.commands"),
    "wavefront-evaluator": (evaluator_cli, "evaluator.commands"),
    "wavefront-training": (training_cli, "training.commands"),
}


def configured(module: Any, document: Path, arguments: argparse.Namespace) -> int:
    """Replace a command's `run`: check the values of its flags, unless the reader has to make its file, or
    the page records what an earlier version did."""
    configure = getattr(module, "config_of_arguments", None)
    if configure and "lab" not in document.parts and Path(arguments.config_file or "").exists():
        configure(arguments)
    return 0


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=name_of)
def test_commands_of_a_page_are_accepted(
    document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPOSITORY)
    for program, *words in pages.commands(document.read_text("utf-8")):
        cli, package = PROGRAMS[program]
        for name in cli.COMMANDS:
            if name in words:
                module = module_of(package, name)
                monkeypatch.setattr(module, "run", partial(configured, module, document))
        monkeypatch.setattr("engine.uci.loop.run", lambda options=None: 0)
        if {"--help", "--help-all", "--version"} & {*words}:
            continue
        try:
            status = cli.main(words)
        except SystemExit as ended:
            status = ended.code
        assert status == 0, f"{program} {shlex.join(words)}: {capsys.readouterr().err}"


@pytest.mark.integration
@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if "lab" not in path.parts and pages.runnable(path.read_text("utf-8"))],
    ids=name_of,
)
def test_commands_of_a_page_run(document: Path) -> None:
    assert list(pages.failures(document.read_text("utf-8"))) == []


def test_patterns_of_commands_that_are_not_run_occur_in_pages() -> None:
    lines = [" ".join(each) for page in DOCUMENTS for each in pages.commands(page.read_text("utf-8"))]
    assert [
        each for each in pages.TABLES["elsewhere"] if not any(re.search(each, line) for line in lines)
    ] == []


def test_flags_in_messages_are_flags_of_the_command() -> None:
    assert sorted(messages.unknown_flags()) == []


def test_examples_for_programs_run(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "start" / "program.md").read_text("utf-8")
    answers, arrays = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "positions.txt").write_text("startpos\n4k3/8/8/8/8/8/4P3/4K3 w - - 0 1\n", "utf-8")
    line = (*ENGINE, "evaluate", "positions.txt", "--backend", "random")
    run(*line, "--output", "answers.jsonl", cwd=tmp_path)
    python(answers, cwd=tmp_path, env=environment())
    assert (tmp_path / "answers.npz").exists()
    with running(tmp_path) as harness:
        shown = python(arrays.replace("tcp://127.0.0.1:5577", harness.address), env=environment())
    promised = re.findall(r"# (\(2, 3\).*)", arrays)
    assert shown.stdout.splitlines()[0] == promised[0]


EXAMPLES = {
    f"{page.name} {number}": example
    for page in (REPOSITORY / "README.md", REPOSITORY / "docs" / "reference" / "python.md")
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
}


@pytest.mark.integration
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_in_python_run_as_they_are_printed(example: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = (sys.executable, "-W", "error", "-c", example)
    done = run(*command, cwd=REPOSITORY, env={**os.environ, "PATH": path})
    assert done.stdout and not done.stderr


def test_every_form_of_the_api_has_an_example() -> None:
    for name in ("Engine(", "asyncio.to_thread(", "popen_uci("):
        assert any(name in example for example in EXAMPLES.values()), name


def test_the_readme_is_short_and_has_the_test_command_of_ci() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= 150
    assert readme.count("<!-- test command -->\n```sh\n") == 1


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}
