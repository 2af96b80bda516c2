# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands bench and status, and the command line that finds them."""

import json
from pathlib import Path

import pytest

from benchmarks.batching.simulation import curve_model
from evaluator import cli
from protocol.common.commands import module_of


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    help_text = module_of("evaluator.commands", name).HELP
    assert help_text[0].islower() and not help_text.endswith(".")
    assert "usage: wavefront-evaluator" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["juggle"])
    assert caught.value.code == 2
    assert "juggle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "--backends", "random"], "bench: error: unrecognized arguments: --backends"),
        (["bench", "--backends", "random"], "did you mean --backend?"),
        (["--backend", "random", "--threads", "many"], "--threads"),
        (["--metric-port", "1"], "did you mean --metrics-port?"),
    ],
)
def test_a_wrong_flag_is_refused_by_the_command_that_it_was_for(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a command that is serve, also when flags with values come first."""
    try:
        assert cli.main(words) == 2
    except SystemExit as ended:
        assert ended.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("service", [False, True], ids=["direct", "service"])
def test_bench_gives_a_curve_as_json(service: bool, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--service"] if service else []
    words = ["bench", "--backend", "random", "--batch", "64,1", "--time-limit", "0.1", "--json"]
    assert cli.main([*words, *flags]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"device", "network", "knee", "curve"}
    assert [point["batch"] for point in report["curve"]] == [1, 64]
    for point in report["curve"]:
        assert point["ms"] > 0
        assert point["positions_per_second"] == pytest.approx(1000 * point["batch"] / point["ms"], rel=0.01)
    assert report["knee"] in (1, 64)


@pytest.mark.integration
def test_bench_marks_the_knee_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "bench.png"
    assert cli.main(["bench", "--backend", "uniform", "--time-limit", "0.2", "--plot", str(plot)]) == 0
    assert "knee" in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "flags",
    [
        ["--batch", "0"],
        ["--batch", "x"],
        ["--time-limit", "0"],
        ["--threads", "0"],
        ["--backend", "abacus"],
        ["--network", "no-such-file"],
    ],
)
def test_bench_says_what_is_wrong(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *flags]) != 0
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.out == ""


def test_a_curve_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    for text in ("", "[]", "{}", '{"curve": [{"batch": 1}]}'):
        wrong.write_text(text)
        with pytest.raises(ValueError, match="`bench --json`"):
            curve_model(str(wrong))
    for text in ('{"curve": []}', '{"curve": [{"batch": 0, "ms": 1}]}'):
        wrong.write_text(text)
        with pytest.raises(ValueError, match="positive sizes"):
            curve_model(str(wrong))
    with pytest.raises(ValueError, match="h200-t82"):
        curve_model("no-such-curve")


def test_status_names_the_remedy_when_no_default_address_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "protocol.connections.addresses.default_addresses", lambda: ["ipc:///tmp/no-such-evaluator"]
    )
    assert cli.main(["status"]) == 1
    assert "`wavefront-evaluator serve` starts one" in capsys.readouterr().err


def test_without_a_gpu_verify_says_what_else_can_be_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("evaluator.backends.gpu.backend.unavailable", lambda: "there is none")
    monkeypatch.setattr("evaluator.commands.verify.run_in_child", lambda function, *given: function(*given))
    assert cli.main(["verify"]) == 1
    said = "backend gpu cannot run here: there is none; --backend onnx compares the one for processors"
    assert capsys.readouterr().err == f"error: {said}\n"


def test_unwritable_picture_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "missing" / "bench.png"
    assert cli.main(["bench", "--backend", "uniform", "--time-limit", "0.2", "--plot", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: cannot draw {path}: ")
