"""The search tree: batches, backup, proofs, draws, reuse and memory."""

from __future__ import annotations

import numpy as np
import pytest

from engine._core import Batch, Game, Tree, evaluate_randomly
from tests.engine.core.search_helpers import children_by_move, game, new_tree, params, search

MIDDLEGAME = "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQK2R w KQkq - 6 5"


def test_the_root_is_evaluated_alone_first() -> None:
    tree = new_tree(game())
    first, second = Batch(8), Batch(8)
    result = tree.collect(first, 8)
    assert (result.evaluations, first.size) == (1, 1)
    assert tree.collect(second, 8).evaluations == 0  # nothing to do until the root's answer is there
    tree.apply_random(first)
    tree.cancel(second)
    assert tree.root_info().visits == 1


def test_visits_of_root_are_one_more_than_those_of_its_moves() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 3000)
    assert tree.root_info().visits == 3000
    assert sum(child.visits for child in tree.children()) == 2999
    assert all(child.in_flight == 0 for child in tree.children())


def test_root_value_is_the_mean_of_its_visits() -> None:
    tree = new_tree(game(MIDDLEGAME), sticky_endgames=False)
    batch = Batch(1)
    tree.collect(batch, 1)
    _, wdl, moves_left = evaluate_randomly(batch)
    tree.apply_random(batch)
    own = (wdl[0, 0] - wdl[0, 2], wdl[0, 1], moves_left[0])
    search(tree, 2000)
    info = tree.root_info()
    for index, (name, tolerance) in enumerate((("q", 1e-6), ("d", 1e-3), ("m", 1e-3))):
        total = own[index] + sum(getattr(c.evaluation, name) * c.visits for c in tree.children() if c.visits)
        assert getattr(info.evaluation, name) == pytest.approx(total / info.visits, abs=tolerance)


def test_a_search_is_reproducible() -> None:
    visits = []
    for _ in range(2):
        tree = new_tree(game(MIDDLEGAME))
        search(tree, 5000, batch_size=64)
        visits.append([(c.move, c.visits, c.evaluation.q) for c in tree.children()])
    assert visits[0] == visits[1]


def test_cancelling_a_batch_leaves_no_trace() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 500)
    before = [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]
    batch = Batch(64)
    assert tree.collect(batch, 64).evaluations > 10
    assert any(child.in_flight for child in tree.children())
    tree.cancel(batch)
    after = [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]
    done = sum(visits for _, visits, _, _ in after) - sum(visits for _, visits, _, _ in before)
    assert all(in_flight == 0 for *_, in_flight in after)
    assert done == tree.root_info().visits - 500  # only what was finished on the spot
    search(tree, 1000)
    assert sum(child.visits for child in tree.children()) == 999


def test_several_batches_hold_different_positions() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 2000)
    batches = [Batch(32) for _ in range(3)]
    for batch in batches:
        assert tree.collect(batch, 32).evaluations > 16
    positions = [bytes(row) for batch in batches for row in batch.positions]
    assert len(set(positions)) == len(positions)
    for batch in reversed(batches):  # answers may come in any order
        tree.apply_random(batch)
    assert tree.root_info().batches_in_flight == 0
    assert all(child.in_flight == 0 for child in tree.children())


def test_visits_of_a_collect_are_limited() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 5000)
    batch = Batch(256)
    result = tree.collect(batch, 256, 10)
    assert result.evaluations + result.visits_done <= 10
    tree.cancel(batch)


@pytest.mark.parametrize(
    ("fen", "value", "plies", "best"),
    [
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", 1, 1, "a1a8"),
        ("k7/8/1K6/8/8/8/8/7R w - - 0 1", 1, 1, "h1h8"),
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 1, 3, "a1a6"),
        ("7k/8/5K2/6Q1/8/8/8/8 b - - 0 1", -1, 2, "h8h7"),
    ],
)
def test_forced_mates_are_proven(fen: str, value: int, plies: int, best: str) -> None:
    tree = new_tree(game(fen))
    search(tree, 20000)
    proof = tree.root_info().proof
    assert proof is not None
    assert proof.value == value
    assert plies <= proof.plies <= plies + 6  # a longer mate may be proven first
    line = tree.lines(1)[0]
    assert line.moves[0] == best or proof.plies > plies
    assert len(line.moves) == proof.plies


def test_proven_values_are_exact() -> None:
    tree = new_tree(game("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"))
    search(tree, 3000)
    mate = children_by_move(tree)["a1a8"]
    assert (mate.evaluation.q, mate.evaluation.d, mate.evaluation.m) == (1.0, 0.0, 1.0)
    assert mate.proof.plies == 1


def test_without_sticky_endgames_nothing_moves_up() -> None:
    tree = new_tree(game("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1"), sticky_endgames=False)
    search(tree, 5000)
    assert tree.root_info().proof is None


@pytest.mark.parametrize(
    ("fen", "value"), [("7k/5KQ1/8/8/8/8/8/8 b - - 0 1", -1), ("7k/5K2/6Q1/8/8/8/8/8 b - - 0 1", 0)]
)
def test_a_finished_game_has_nothing_to_search(fen: str, value: int) -> None:
    tree = new_tree(game(fen))
    batch = Batch(8)
    for _ in range(3):
        result = tree.collect(batch, 8)
        assert result.evaluations == 0
        tree.apply_random(batch)
    assert tree.lines(5) == []
    assert tree.children() == []
    assert tree.root_info().proof.value == value


def test_bare_material_and_the_fifty_move_rule_are_draws() -> None:
    tree = new_tree(game("8/8/4k3/8/8/4p3/4K3/8 w - - 10 60"))
    search(tree, 500)
    capture = children_by_move(tree)["e2e3"]
    assert (capture.evaluation.q, capture.evaluation.d, capture.proof.value) == (0.0, 1.0, 0)

    tree = new_tree(game("8/8/4k3/8/8/8/4K2R/8 w - - 99 100"))
    search(tree, 500)
    assert all(child.proof.value == 0 for child in tree.children())


def test_a_repetition_in_the_searched_line_is_a_draw() -> None:
    tree = new_tree(game("k7/8/8/8/8/8/7r/K6R w - - 0 1", ["h1g1", "h2g2"]))
    search(tree, 3000)
    assert tree.root_info().visits == 3000
    third = game("7k/8/8/8/8/8/R7/K7 w - - 0 1", ["a2b2", "h8g8", "b2a2", "g8h8", "a2b2", "h8g8", "b2a2"])
    tree = new_tree(third)
    search(tree, 200)
    repeated = children_by_move(tree)["g8h8"]
    assert (repeated.evaluation.d, repeated.proof.value) == (1.0, 0)


def test_two_fold_draws_are_undone_when_their_first_occurrence_becomes_history() -> None:
    # Little but shuffling is left: the search is full of cycles.
    tree = new_tree(game("k7/8/8/8/8/5b2/8/6BK w - - 0 1"))
    search(tree, 4000)
    moves: list[str] = []
    for _ in range(6):
        if not (lines := tree.lines(1)) or not lines[0].moves:
            break
        moves.append(lines[0].moves[0])
        following = game("k7/8/8/8/8/5b2/8/6BK w - - 0 1", moves)
        if following.result() != "undecided":
            break
        kept = tree.set_position(following)
        assert kept == tree.root_info().visits
        assert kept >= sum(child.visits for child in tree.children())
        assert abs(tree.root_info().evaluation.q) <= 1.0
        search(tree, 4000)


def test_lines_are_of_visited_moves() -> None:
    tree = new_tree(game())
    assert tree.lines(5) == []
    search(tree, 1)
    assert [line.visits for line in tree.lines(5)] == [0]  # evaluated alone: the move with the highest prior
    search(tree, 4)
    assert [line.visits for line in tree.lines(5)] == [1, 1, 1]


def test_the_tree_follows_the_game() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 4000)
    line = tree.lines(1)[0]
    visits = children_by_move(tree)[line.moves[0]].visits
    kept = tree.set_position(game(MIDDLEGAME, line.moves[:1]))
    assert kept == visits
    assert tree.root_info().playouts == 0
    kept = tree.set_position(game(MIDDLEGAME, line.moves[:3]))
    assert 0 < kept < visits
    search(tree, kept + 1000)
    assert tree.root_info().visits == kept + 1000


def test_another_game_or_a_takeback_starts_afresh() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 1000)
    assert tree.set_position(game(MIDDLEGAME)) == 1000  # the same position keeps everything
    assert tree.set_position(game(MIDDLEGAME, ["e1g1"])) > 0
    assert tree.set_position(game(MIDDLEGAME)) == 0
    search(tree, 1000)
    assert tree.set_position(game()) == 0


def test_memory_of_moves_not_played_is_used_again() -> None:
    tree = new_tree(game(MIDDLEGAME))
    moves: list[str] = []
    used = []
    for _ in range(12):
        search(tree, 5000)
        used.append(tree.root_info().memory_bytes)
        moves.append(tree.lines(1)[0].moves[0])
        tree.set_position(game(MIDDLEGAME, moves))
    assert max(used) < 2.5 * used[0]


def test_the_search_may_be_limited_to_some_root_moves() -> None:
    tree = new_tree(game(MIDDLEGAME))
    tree.set_root_moves(["a2a3", "h2h4"])
    search(tree, 1000)
    assert {child.move for child in tree.children()} == {"a2a3", "h2h4"}
    assert sum(child.visits for child in tree.children()) == 999
    assert len(tree.lines(10)) == 2
    tree.set_root_moves([])
    search(tree, 3000)
    assert sum(child.visits for child in tree.children()) == 2999
    assert len(tree.children()) == len(game(MIDDLEGAME).legal_moves())
    with pytest.raises(ValueError, match="e2e5"):
        tree.set_root_moves(["e2e5"])


def test_the_tree_keeps_within_its_memory_and_says_when_it_is_full() -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=4 << 20, cache_bytes=1 << 20)
    batch = Batch(128)
    for _ in range(2000):
        result = tree.collect(batch, 128)
        tree.apply_random(batch)
        if result.full:
            break
    info = tree.root_info()
    assert result.full
    assert info.memory_bytes <= 4 << 20
    assert info.hashfull >= 950
    assert sum(child.visits for child in tree.children()) == info.visits - 1
    best = tree.lines(1)[0].moves[0]
    tree.set_position(game(MIDDLEGAME, [best]))  # the rest becomes free
    before = tree.root_info().visits
    search(tree, before + 2000)
    assert tree.root_info().visits == before + 2000


def test_a_visited_node_takes_at_most_300_bytes() -> None:
    # 40 legal moves at the root, about 35 in the tree.
    tree = new_tree(game("r1bq1rk1/pp2bppp/2n1pn2/3p4/3P4/2NBPN2/PP3PPP/R1BQ1RK1 w - - 0 9"), cache_bytes=0)
    search(tree, 20000, batch_size=256)
    assert tree.root_info().memory_bytes / 20000 <= 300 - 96  # 96: the record in the evaluation cache


@pytest.mark.parametrize("fault", ["few_logits", "few_positions", "nan", "infinity"])
def test_wrong_evaluations_are_refused_and_change_nothing(fault: str) -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 300)
    batch = Batch(16)
    assert tree.collect(batch, 16).evaluations > 2
    logits, wdl, moves_left = evaluate_randomly(batch)
    if fault == "few_logits":
        wrong = (logits[:-1].copy(), wdl, moves_left)
    elif fault == "few_positions":
        wrong = (logits, wdl[:-1].copy(), moves_left)
    else:
        bad = logits.copy()
        bad[3] = np.nan if fault == "nan" else np.inf
        wrong = (bad, wdl, moves_left)
    visits = tree.root_info().visits
    with pytest.raises(ValueError, match="evaluations"):
        tree.apply(batch, *wrong)
    assert tree.root_info().visits == visits
    tree.apply(batch, logits, wdl, moves_left)
    assert tree.root_info().visits == visits + len(moves_left)


def apply_by_pieces(tree: Tree, batch: Batch) -> None:
    """Apply evaluations that depend on a position's pieces alone, as the cache takes for granted."""
    offsets, moves = batch.move_offsets, batch.moves
    logits, wdl = np.empty(len(moves), np.float32), np.empty((batch.size, 3), np.float32)
    for index, position in enumerate(batch.positions):
        random = np.random.default_rng(position[: 12 * 8])
        own = slice(offsets[index], offsets[index + 1])
        logits[own] = 3 * random.standard_normal(1858, np.float32)[moves[own]]
        wdl[index] = random.dirichlet((1, 1, 1))
    tree.apply(batch, logits, wdl, np.zeros(batch.size, np.float32))


def test_looking_ahead_changes_what_is_sent_but_not_what_is_found() -> None:
    found, batches = [], []
    for ahead in (0, 24):
        tree = new_tree(game(MIDDLEGAME))
        batch = Batch(1 + ahead)
        batches.append(0)
        while (visits := tree.root_info().visits) < 600:
            result = tree.collect(batch, 1, 600 - visits, ahead)
            assert result.evaluations == batch.size <= 600 - visits
            if batch.size:
                apply_by_pieces(tree, batch)
                batches[-1] += 1
            else:
                tree.cancel(batch)
        assert tree.root_info().visits == 600
        assert all(child.in_flight == 0 for child in tree.children())
        found.append([(c.move, c.visits, c.prior, c.evaluation.q) for c in tree.children()])
    assert found[0] == found[1]
    assert batches[1] < batches[0] / 2


def test_what_is_looked_ahead_to_is_cached_and_has_no_visit() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 1)
    batch = Batch(28)
    assert tree.collect(batch, 2, 400, 26).evaluations == 28
    ahead = {position.tobytes() for position in batch.positions[2:]}
    tree.apply_random(batch)
    assert tree.root_info().visits == 3
    batches = []
    while tree.root_info().visits < 100:
        tree.collect(batch, 2, 400)
        batches += [position.tobytes() for position in batch.positions]
        tree.apply_random(batch)
    assert ahead.isdisjoint(batches)
    assert tree.root_info().cache_hits >= len(ahead) / 2


def test_a_batch_that_looked_ahead_can_be_cancelled() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 200)
    before = [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]
    batch = Batch(64)
    assert tree.collect(batch, 8, 1000, 56).evaluations > 16
    tree.cancel(batch)
    assert [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()] == before


def test_misuse_is_refused() -> None:
    tree, other = new_tree(game()), new_tree(game())
    batch = Batch(4)
    tree.collect(batch, 4)
    with pytest.raises(RuntimeError, match="under way"):
        tree.collect(batch, 4)
    with pytest.raises(RuntimeError, match="under way"):
        tree.set_position(game(MIDDLEGAME))
    with pytest.raises(RuntimeError, match="under way"):
        tree.clear()
    with pytest.raises(RuntimeError, match="not collected"):
        other.apply_random(batch)
    tree.apply_random(batch)
    with pytest.raises(RuntimeError, match="not collected"):
        tree.cancel(batch)
    for target in (0, 5):
        with pytest.raises(ValueError, match="capacity"):
            tree.collect(batch, target)
    for ahead in (-1, 3):
        with pytest.raises(ValueError, match="capacity"):
            tree.collect(batch, 2, 100, ahead)
    with pytest.raises(ValueError, match="positions"):
        Batch(0)


def test_positions_evaluated_before_come_from_the_cache() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 2000, batch_size=1)
    first = {c.move: c.visits for c in tree.children()}
    tree.clear()
    search(tree, 2000, batch_size=1)
    info = tree.root_info()
    assert info.evaluations == 0
    assert info.cache_hits > 0
    assert {c.move: c.visits for c in tree.children()} == first
    tree.clear_cache()
    tree.clear()
    search(tree, 2000)
    assert tree.root_info().evaluations > 0


def test_settings_that_evaluations_depend_on_clear_tree_and_cache() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 500)
    tree.set_params(params(cpuct=2.5))
    assert tree.root_info().visits == 500
    tree.set_params(params(cpuct=2.5, policy_temperature=1.0))
    assert tree.root_info().visits == 0
    search(tree, 500)
    assert tree.root_info().evaluations > 100


def test_the_draw_score_makes_draws_worse_for_the_side_that_must_win() -> None:
    # Taking the pawn leaves bare kings: with draws worth -1 for White that loses its charm.
    position = game("8/8/4k3/8/8/4p3/4K3/8 w - - 10 60")
    neutral, must_win = new_tree(position), new_tree(position, draw_score=-1.0)
    for tree in (neutral, must_win):
        search(tree, 2000)
    drawn = [children_by_move(tree)["e2e3"].visits for tree in (neutral, must_win)]
    assert drawn[1] < drawn[0]


def test_chess960_castling_is_spelled_by_the_mode() -> None:
    fen = "rnbqkbnr/pppp1ppp/8/4p3/4P3/5NP1/PPPP1PBP/RNBQK2R w HAha - 0 4"
    for chess960, castling in ((True, "e1h1"), (False, "e1g1")):
        tree = Tree(params())
        tree.set_position(game(fen if chess960 else fen.replace("HAha", "KQkq"), chess960=chess960))
        search(tree, 300)
        assert castling in {child.move for child in tree.children()}


def test_a_position_in_which_the_king_could_be_taken_is_refused() -> None:
    tree = new_tree(game())
    with pytest.raises(ValueError, match="king"):
        tree.set_position(Game("4k3/8/8/8/8/8/8/4RK2 w - - 0 1", allow_opponent_check=True))
    search(tree, 10)
    assert tree.root_info().visits == 10


@pytest.mark.parametrize("visits_before", [0, 500])
def test_root_noise_mixes_into_the_priors_once(visits_before: int) -> None:
    plain, noisy = new_tree(game(MIDDLEGAME)), new_tree(game(MIDDLEGAME))
    for tree in (plain, noisy):
        search(tree, visits_before)
    noisy.add_root_noise(0.25, 0.3, seed=7)
    for tree in (plain, noisy):
        search(tree, 2000)
    priors = [{move: child.prior for move, child in children_by_move(t).items()} for t in (plain, noisy)]
    noise = {move: (priors[1][move] - 0.75 * priors[0][move]) / 0.25 for move in priors[0]}
    assert sum(noise.values()) == pytest.approx(1.0, abs=0.01)
    assert min(noise.values()) > -0.001
    assert max(noise.values()) > 0.2  # alpha 0.3: few moves get most of it
    assert sum(child.visits for child in noisy.children()) == noisy.root_info().visits - 1
    assert all(child.in_flight == 0 for child in noisy.children())
    raw = {move: child.raw_prior for move, child in children_by_move(noisy).items()}
    assert raw == priors[0]

    noisy.add_root_noise(0.25, 0.3, seed=8)  # it has noise already
    assert {move: child.prior for move, child in children_by_move(noisy).items()} == priors[1]

    noisy.set_position(game(MIDDLEGAME, ["e1g1"]))  # the next position has none of it
    plain.set_position(game(MIDDLEGAME, ["e1g1"]))
    for tree in (plain, noisy):
        search(tree, tree.root_info().visits + 10)
    after = [{move: child.prior for move, child in children_by_move(t).items()} for t in (plain, noisy)]
    assert after[0] == after[1]


@pytest.mark.parametrize(("epsilon", "alpha"), [(-0.1, 0.3), (1.1, 0.3), (0.25, 0.0), (float("nan"), 0.3)])
def test_senseless_noise_is_refused(epsilon: float, alpha: float) -> None:
    tree = new_tree(game())
    with pytest.raises(ValueError, match="noise"):
        tree.add_root_noise(epsilon, alpha, seed=1)


def test_the_root_tells_the_network_s_own_evaluation_and_the_spread_of_its_values() -> None:
    tree = new_tree(game(MIDDLEGAME))
    assert tree.root_info().own_evaluation is None
    assert tree.root_info().q_deviation == 0.0
    batch = Batch(1)
    tree.collect(batch, 1, 1)
    logits, wdl, moves_left = evaluate_randomly(batch)
    tree.apply(batch, logits, wdl, moves_left)
    own = tree.root_info().own_evaluation
    assert own is not None
    assert own.q == pytest.approx(wdl[0][0] - wdl[0][2])
    assert own.d == pytest.approx(wdl[0][1])
    assert own.m == pytest.approx(moves_left[0])
    assert tree.root_info().q_deviation == pytest.approx(0.0, abs=1e-6)

    search(tree, 1000)
    assert tree.root_info().own_evaluation.q == own.q
    assert 0.0 < tree.root_info().q_deviation < 1.0
    tree.clear_cache()
    own = tree.root_info().own_evaluation
    assert own.q == pytest.approx(wdl[0][0] - wdl[0][2])
    assert own.d != own.d
    assert own.m != own.m


def test_the_spread_of_values_is_their_standard_deviation() -> None:
    tree = new_tree(game(MIDDLEGAME), sticky_endgames=False)
    values = []
    for visits in range(1, 200):
        before = tree.root_info().evaluation.q * (visits - 1)
        search(tree, visits, batch_size=1)
        values.append(tree.root_info().evaluation.q * visits - before)
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    assert tree.root_info().q_deviation == pytest.approx(deviation, abs=1e-5)
