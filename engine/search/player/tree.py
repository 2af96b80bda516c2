# SPDX-License-Identifier: GPL-3.0-or-later
"""A player's tree, which follows the options and the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine._core import SearchParams, Tablebases, Tree
from engine.options import OPTIONS, Options
from engine.search.player.memory import SMALL_HASH_MB, cache_megabytes, tree_megabytes
from engine.search.player.network_constants import with_network_constants
from engine.search.player.task import SearchTask
from engine.search.player.tree_file import Favoured, note_of, read_header, replace_file, tree_settings
from engine.search.strength.contempt import NO_CONTEMPT, Contempt
from engine.search.tablebases import description, open_tablebases

if TYPE_CHECKING:
    from engine._core import TreeFileSize
    from protocol.wire.messages import NetworkInfo

CORE_OPTIONS = tuple(option.name for option in OPTIONS if hasattr(SearchParams, option.name))
"""Options with the same name and value as a parameter of the core."""


def search_params(
    options: Options,
    input_format: int,
    *,
    contempt: Contempt = NO_CONTEMPT,
    has_moves_left: bool = True,
    tablebases: Tablebases | None = None,
    solves_endings: bool = True,
) -> SearchParams:
    """Return the options as parameters of the core.

    input_format: lc0's number of the network's input planes. has_moves_left: True if the network predicts the
    length of games; otherwise it has no effect on the choice of moves. tablebases: those of SyzygyPath.
    solves_endings: compute mates with one or two pieces, if tablebases do not know them.
    """
    params = SearchParams()
    for name in CORE_OPTIONS:
        setattr(params, name, getattr(options, name))
    if not options.root_has_own_cpuct:
        params.cpuct_at_root = options.cpuct
        params.cpuct_base_at_root = options.cpuct_base
        params.cpuct_factor_at_root = options.cpuct_factor
    params.fpu_absolute = options.fpu_strategy == "absolute"
    same = options.fpu_strategy_at_root == "same"
    params.fpu_absolute_at_root = params.fpu_absolute if same else options.fpu_strategy_at_root == "absolute"
    if same:
        params.fpu_value_at_root = options.fpu_value
    params.tree_bytes = tree_megabytes(options) << 20
    params.cache_bytes = cache_megabytes(options) << 20
    params.input_format = input_format
    params.wdl_ratio, params.wdl_shift = contempt.ratio, contempt.shift
    params.wdl_max_scale = contempt.max_scale
    if not has_moves_left:
        params.moves_left_max_effect = 0.0
    params.tablebases = tablebases
    params.solves_endings = solves_endings
    return params


ALL_BEFORE = 1000
"""More positions than a game has before an analysed one."""

NONE_FAVOURED: Favoured = (frozenset(), frozenset())


class SearchTree:
    """A tree, created when it is first needed. log: receives messages for the user."""

    def __init__(self, log: Callable[[str], None] = lambda text: None) -> None:
        self._log = log
        self._tree: Tree | None = None
        self._key: tuple[Options, int, Contempt, bool, bool] | None = None
        self._network_identity = ""
        # By position key: the moves that limited searches favoured, and those of the last one.
        self._favoured: dict[int, Favoured] = {}
        self._root_key = 0
        # Settings of the tree that was loaded, until the next search.
        self._loaded: list[tuple[str, str]] | None = None
        self._tablebases: Tablebases | None = None
        self._tablebases_path: str | None = None

    def use_tablebases(self, path: str, log: Callable[[str], None] = lambda text: None) -> None:
        """Open the tables for a value of SyzygyPath, unless in use, and log what its folders have."""
        if path == self._tablebases_path:
            return
        self._tablebases_path = path
        self._tablebases = open_tablebases(path)
        for text in description(path):
            log(text)

    def tell_damage(self, log: Callable[[str], None]) -> None:
        """Log the table files that turned out to be damaged."""
        if self._tablebases is not None:
            for text in self._tablebases.take_complaints():
                log(text)

    def prepared_for(self, task: SearchTask, network: NetworkInfo) -> Tree:
        """Return the tree for a task whose positions this network evaluates."""
        return self.prepared(
            with_network_constants(task.options, network.content_hash),
            network.input_format,
            network.identity,
            contempt=task.contempt,
            has_moves_left=network.has_moves_left,
            solves_endings=task.level is None,  # People do not.
        )

    def prepared(
        self,
        options: Options,
        input_format: int,
        network_identity: str,
        *,
        contempt: Contempt = NO_CONTEMPT,
        has_moves_left: bool = True,
        solves_endings: bool = True,
    ) -> Tree:
        """Return the tree with these options, cleared if it is another network's.

        network_identity: NetworkInfo.identity.
        """
        self.use_tablebases(options.syzygy_path)
        key = (options, input_format, contempt, has_moves_left, solves_endings)
        if self._tree is None or self._key != key:
            params = search_params(
                options,
                input_format,
                contempt=contempt,
                has_moves_left=has_moves_left,
                tablebases=self._tablebases,
                solves_endings=solves_endings,
            )
            try:
                self._tree = self._following(params)
            except MemoryError:
                # A size in between might just fit, and leave no memory to the rest of the machine.
                self._log(f"there is no memory for a Hash of {options.hash} MB: {SMALL_HASH_MB} MB are taken")
                params.cache_bytes = SMALL_HASH_MB << 20
                self._tree = self._following(params)
        if self._network_identity != network_identity:
            self.clear()
        self._key = key
        self._network_identity = network_identity
        return self._tree

    def _following(self, params: SearchParams) -> Tree:
        """Return the tree with these parameters. Raises MemoryError, and changes nothing, if the cache does
        not fit."""
        if self._tree is None:
            return Tree(params)
        self._tree.set_params(params)
        return self._tree

    def set_root(self, task: SearchTask) -> Tree:
        """Make a task's position the root of the prepared tree, with its root moves and noise.

        If an earlier search was limited to some of these moves, its visits are discarded: they would make the
        other moves look bad. Evaluations stay in the cache.
        """
        assert self._tree is not None
        if task.level is not None:
            self.new_game()  # Visits of an analysis would make the level stronger.
        # An analyst may go anywhere next. After pondering, the opponent may play another move.
        before = ALL_BEFORE if task.limits.infinite else 1 if task.limits.ponder else 0
        kept = self._tree.set_position(task.game, before)
        self._root_key = task.game.key
        self._forget_favoured_visits(task, kept)
        if self._loaded is not None:
            self._report_unused_tree(self._tree, self._loaded, kept)
            self._loaded = None
        self._tree.set_root_moves(task.search_moves)
        options = task.options
        if options.dirichlet_noise_epsilon > 0:
            self._tree.add_root_noise(
                options.dirichlet_noise_epsilon, options.dirichlet_noise_alpha, task.random.getrandbits(64)
            )
        return self._tree

    def _report_unused_tree(self, tree: Tree, loaded: list[tuple[str, str]], kept: int) -> None:
        """Log why the search does not use the loaded tree, if it does not. kept: visits of its position."""
        if kept and tree.root_info().visits:
            return
        different = [now[0] for was, now in zip(loaded, self._settings(tree), strict=True) if was != now]
        if different:
            reason = f"other {', '.join(different)}"
        elif kept:
            reason = "it prefers some of the moves"
        else:
            reason = "it does not have this position with these rules, or the strength is limited"
        self._log(f"the loaded tree is not used: {reason}")

    def _forget_favoured_visits(self, task: SearchTask, kept: int) -> None:
        """Clear the tree if visits of its root, the position of a task, favour some of the task's moves.

        kept: visits of the root. Favoured moves of other positions are kept, because the tree may return to
        one after pondering.
        """
        assert self._tree is not None
        position, moves = task.game.key, frozenset(task.root_moves)
        favoured, last = self._favoured.pop(position, NONE_FAVOURED)
        if not kept:
            favoured = frozenset()
        if moves & favoured and not moves <= last:
            self.new_game()
            favoured = frozenset()
        if task.search_moves:
            favoured |= moves
        if favoured:
            self._favoured[position] = favoured, moves

    def tree_at(self, task: SearchTask) -> Tree | None:
        """Return the tree with a task's position as its root; None if it has no visits of it."""
        if self._tree is None or not self.set_root(task).root_info().visits:
            return None
        return self._tree

    def with_tablebase_moves(self, task: SearchTask) -> SearchTask:
        """Return the root's task with the moves that the tablebases leave, unless its strength is limited."""
        assert self._tree is not None
        if not self._tablebases or task.level is not None:
            return task
        return replace(task, tablebase_moves=tuple(self._tree.root_moves()))

    def save(self, path: str) -> TreeFileSize:
        """Save the tree of the last search to a file. Raises ValueError with a reason (tree_file.py)."""
        tree = self._tree
        if tree is None or not tree.root_info().visits:
            raise ValueError("there is no tree: search a position first")
        settings, note = self._settings(tree), note_of(self._favoured.get(self._root_key))
        return replace_file(path, lambda new: tree.save(new, settings, note))

    def load(self, path: str) -> TreeFileSize:
        """Replace the prepared tree by one from a file. Raises ValueError with a reason (tree_file.py)."""
        assert self._tree is not None
        game, favoured = read_header(path)
        size = self._tree.load(path, self._settings(self._tree))
        self._root_key = game.key
        self._favoured = {} if favoured is None else {game.key: favoured}
        self._loaded = self._settings(self._tree)
        return size

    def _settings(self, tree: Tree) -> list[tuple[str, str]]:
        return tree_settings(tree.params, self._network_identity, self._tablebases_path or "included")

    def new_game(self) -> None:
        """Clear the tree. Cached evaluations remain valid."""
        self._favoured.clear()
        if self._tree is not None:
            self._tree.clear()

    def clear(self) -> None:
        """Clear the tree and the evaluation cache."""
        self.new_game()
        if self._tree is not None:
            self._tree.clear_cache()
