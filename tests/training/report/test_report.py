# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks are held against deep labels: moves found, expected score lost, policy and value calibrated."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine._core import Game
from engine.apps.shards.move_codes import move_code
from engine.apps.shards.shard import Shard, write_shard
from tests.training.labels import labelled_shard, position_labels
from tests.training.run.runs import run_training
from training.errors import TrainingError
from training.label.engine import NoEngineError
from training.label.settings import LabelSettings
from training.report.figures import TEMPERATURES, network_report
from training.report.judging import judge
from training.report.positions import DeepPositions, expected, kinds_of, read_positions
from training.targets import label_wdl, sharpened

pytestmark = pytest.mark.integration

SCRIPTED = f"{sys.executable} -m tests.training.label.scripted_engine"


@pytest.fixture
def shard() -> Shard:
    return labelled_shard(3, 20)


@pytest.fixture
def positions(shard: Shard, tmp_path: Path) -> DeepPositions:
    write_shard(tmp_path / "a.shard", shard)
    write_shard(tmp_path / "b.shard", labelled_shard(2, 12, seed=9))
    return read_positions([tmp_path / "a.shard", tmp_path / "b.shard"], 0, seed=1)


def logits_of(positions: DeepPositions, start: NDArray[np.int64], best: float) -> NDArray[np.float32]:
    """Zero for all moves but the labels' best ones."""
    logits = np.zeros(start[-1], np.float32)
    logits[start[:-1] + positions.best] = best
    return logits


def wdl_of(score: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([score, 0 * score, 1 - score], axis=1)


def test_report_has_no_error_when_outputs_equal_labels(positions: DeepPositions) -> None:
    rows = positions.encoded(1)
    assert len(rows) == len(positions)
    report = network_report(
        "n", positions, logits_of(positions, rows.start, 9.0), wdl_of(positions.value), rows.start
    )
    for part in ("all", "games", "branches"):
        figures = report.parts[part]
        assert figures.top1 == 1
        assert figures.regret == pytest.approx(0, abs=1e-6)
        assert figures.unlisted == 0
        assert figures.value_rmse == pytest.approx(0, abs=1e-6)
    assert report.parts["games"].positions + report.parts["branches"].positions == len(positions)
    assert report.parts["branches"].positions == positions.branch.sum() > 0
    assert report.best_temperature == TEMPERATURES[0]
    assert report.calibration["all"][:, 0] == pytest.approx(report.calibration["all"][:, 1], abs=1e-6)
    assert report.calibration["all"][:, 2].sum() == len(positions)


def test_regret_and_bias_are_what_moves_and_values_lose(positions: DeepPositions) -> None:
    rows = positions.encoded(1)
    worst = positions.scores.argmin(axis=1)
    logits = np.zeros(rows.start[-1], np.float32)
    logits[rows.start[:-1] + positions.places[np.arange(len(worst)), worst]] = 1
    report = network_report("n", positions, logits, wdl_of(positions.value + np.float32(0.1)), rows.start)
    lost = positions.scores.max(axis=1) - positions.scores.min(axis=1)
    assert report.parts["all"].regret == pytest.approx(float(lost.mean()), abs=1e-5)
    assert report.parts["all"].value_bias == pytest.approx(0.1, abs=1e-5)


def test_the_best_scales_undo_what_sharpens_a_policy_and_a_value(positions: DeepPositions) -> None:
    rows = positions.encoded(1)
    generator = np.random.default_rng(2)
    # Where the labels' move is drawn from the policy, the policy is right at temperature 1.
    logits = generator.normal(0, 2, rows.start[-1]).astype(np.float32)
    best = np.array(
        [
            generator.choice(b - a, p=np.exp(logits[a:b]) / np.exp(logits[a:b]).sum())
            for a, b in zip(rows.start[:-1], rows.start[1:], strict=True)
        ],
        np.uint8,
    )
    drawn = replace(positions, best=best)
    wdl = wdl_of(positions.value)
    plain = network_report("n", drawn, logits, wdl, rows.start)
    sharp = network_report("n", drawn, 2 * logits, sharpened(wdl, 1.25), rows.start)
    assert (plain.best_value_scale, sharp.best_value_scale) == pytest.approx((1, 0.8), rel=0.03)
    assert sharp.best_temperature == pytest.approx(2 * plain.best_temperature, rel=0.06)
    assert sharp.parts["all"].log_loss_best == pytest.approx(plain.parts["all"].log_loss_best, rel=0.01)
    assert sharp.parts["all"].log_loss > plain.parts["all"].log_loss


def test_unlisted_moves_are_judged_by_the_next_position(positions: DeepPositions) -> None:
    rows = positions.encoded(1)
    counts = np.diff(rows.start)
    unlisted = {
        number: next(place for place in range(counts[number]) if place not in positions.places[number])
        for number in range(len(positions))
        if counts[number] > 5
    }
    games = positions.games_after(unlisted)
    assert games.keys() == unlisted.keys()
    number = next(number for number in unlisted if positions.branch[number])
    before = games[number].copy()
    move = before.pop()
    assert before.legal_moves()[positions.best[number]] is not None
    assert before.legal_moves().index(move) == unlisted[number]
    lines, _ = position_labels(before)
    assert lines[0] == move_code(before.legal_moves()[positions.best[number]])

    logits = np.zeros(rows.start[-1], np.float32)
    for each, place in unlisted.items():
        logits[rows.start[each] + place] = 1
    wdl = wdl_of(positions.value)
    bound = network_report("n", positions, logits, wdl, rows.start).parts["all"]
    assert bound.unlisted > 0.5
    exact = network_report(
        "n", positions, logits, wdl, rows.start, lambda moves: dict.fromkeys(moves, 0.0)
    ).parts["all"]
    assert exact.unlisted < bound.unlisted
    assert exact.regret > bound.regret


def test_an_engine_judges_several_positions_at_a_time() -> None:
    games = []
    for move in ("e2e4", "a2a3", "d2d4"):
        game = Game()
        game.push_uci(move)
        games.append(game)
    scores = judge(games, LabelSettings(engine=SCRIPTED), 2, lambda text: None)
    assert scores == [position_labels(game)[1][0] for game in games]
    with pytest.raises(NoEngineError, match="cannot start /no/engine"):
        judge(games, LabelSettings(engine="/no/engine"), 2, lambda text: None)


def test_a_report_is_printed_and_drawn(shard: Shard, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install '.[plot]'")
    write_shard(tmp_path / "a.shard", shard)
    arguments = ("report", "shipped", "--data", tmp_path, "--backend", "uniform", "--positions", 40)
    plot = tmp_path / "report.png"
    done = run_training(*arguments, "--json", "--plot", plot, "--engine", SCRIPTED, "--workers", 2)
    (report,) = json.loads(done.stdout)
    assert report["all"]["positions"] == 40
    assert report["all"]["unlisted"] == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = run_training(*arguments).stdout
    assert "branches" in text
    assert f"{report['all']['top1']:.1%}" in text


def test_shards_without_labelled_positions_are_refused(tmp_path: Path) -> None:
    empty = labelled_shard(0, 0)
    write_shard(tmp_path / "a.shard", empty)
    with pytest.raises(TrainingError, match=r"a\.shard: "):
        read_positions([tmp_path / "a.shard"], 0, seed=1)
    (tmp_path / "b.shard").write_bytes(b"WFSHARD1")
    with pytest.raises(TrainingError, match=r"b\.shard: truncated"):
        read_positions([tmp_path / "b.shard"], 0, seed=1)


def test_values_are_expected_scores_of_the_targets_curve(positions: DeepPositions, shard: Shard) -> None:
    from training.config import TargetSettings

    cp = shard.columns["best_cp"][:1]
    wdl = label_wdl(cp, np.array([0]), TargetSettings())
    assert positions.value[0] == expected(wdl)[0]


def test_kinds_divide_positions_by_their_properties(positions: DeepPositions) -> None:
    kinds = kinds_of(positions)
    masks = np.array(list(kinds.values()))
    assert masks.sum(axis=0).tolist() == [4] * len(positions)
    assert kinds["best move tactical"].any()
    assert kinds["25 men and more"].all()
    games = dict(positions.games())
    number = int(np.flatnonzero(kinds["best move tactical"])[0])
    game = games[number]
    men = game.men
    game.push_uci(game.legal_moves()[positions.best[number]])
    assert game.men < men or game.in_check
    rows = positions.encoded(1)
    logits = logits_of(positions, rows.start, 9.0)
    report = network_report(
        "n", positions, logits, wdl_of(positions.value), rows.start, None, {"some": masks[3]}
    )
    assert report.parts["some"].positions == masks[3].sum()
