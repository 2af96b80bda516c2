"""A player's tree: made from the options when it is first needed, and kept in step with them."""

from __future__ import annotations

from engine._core import SearchParams, Tree
from engine.options import OPTIONS, Options
from engine.search.contempt import NO_CONTEMPT, Contempt
from engine.search.task import SearchTask

CORE_OPTIONS = tuple(option.name for option in OPTIONS if hasattr(SearchParams, option.name))
"""The options that are parameters of the core by themselves."""


def search_params(
    options: Options,
    input_format: int,
    *,
    contempt: Contempt = NO_CONTEMPT,
    has_moves_left: bool = True,
) -> SearchParams:
    """The options as the core takes them. input_format: lc0's number of the network's input planes.

    has_moves_left: whether the network says how long games last. If not, no move is preferred for that.
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
    params.tree_bytes = options.tree_memory << 20
    params.cache_bytes = options.hash << 20
    params.input_format = input_format
    params.wdl_ratio, params.wdl_shift = contempt.ratio, contempt.shift
    params.wdl_max_scale = contempt.max_scale
    if not has_moves_left:
        params.moves_left_max_effect = 0.0
    return params


class SearchTree:
    """A tree that follows the options and the network; made when it is first needed."""

    def __init__(self) -> None:
        self._tree: Tree | None = None
        self._key: tuple[Options, int, Contempt, bool] | None = None
        self._network_hash = ""
        # Of the root: its key, the moves that limited searches have favoured, those of the last search.
        self._searched: tuple[int, frozenset[str], frozenset[str]] = (0, frozenset(), frozenset())

    def prepared(
        self,
        options: Options,
        input_format: int,
        network_hash: str,
        *,
        contempt: Contempt = NO_CONTEMPT,
        has_moves_left: bool = True,
    ) -> Tree:
        """The tree, with these options. What it holds of another network is forgotten."""
        key = (options, input_format, contempt, has_moves_left)
        if self._tree is None or self._key != key:
            params = search_params(options, input_format, contempt=contempt, has_moves_left=has_moves_left)
            if self._tree is None:
                self._tree = Tree(params)
            else:
                self._tree.set_params(params)
        if self._network_hash != network_hash:
            self.clear()
        self._key = key
        self._network_hash = network_hash
        return self._tree

    def set_root(self, task: SearchTask) -> Tree:
        """Make the position of a task the root of the prepared tree, with the moves to be searched and the
        noise that the options ask for.

        Where an earlier search of the position was limited to some of these moves, its visits are forgotten:
        they would say that the others are bad, which nobody has looked at. The evaluations stay in the cache.
        """
        assert self._tree is not None
        # The opponent may play another move than the one that is pondered.
        self._tree.set_position(task.game, 1 if task.limits.ponder else 0)
        position, moves = task.game.key, frozenset(task.root_moves)
        before, favoured, last = self._searched
        if before != position:
            favoured = frozenset()
        elif moves & favoured and not moves <= last:
            self._tree.clear()
            favoured = frozenset()
        self._searched = position, favoured | moves if task.search_moves else favoured, moves
        self._tree.set_root_moves(task.search_moves)
        options = task.options
        if options.dirichlet_noise_epsilon > 0:
            self._tree.add_root_noise(
                options.dirichlet_noise_epsilon, options.dirichlet_noise_alpha, task.random.getrandbits(64)
            )
        return self._tree

    def known(self, task: SearchTask) -> Tree | None:
        """The tree with the position of a task as its root, if it has visits of it already; None if not."""
        if self._tree is None or not self.set_root(task).root_info().visits:
            return None
        return self._tree

    def new_game(self) -> None:
        """Forget the tree; cached evaluations stay true."""
        if self._tree is not None:
            self._tree.clear()

    def clear(self) -> None:
        """Forget the tree and every cached evaluation."""
        if self._tree is not None:
            self._tree.clear()
            self._tree.clear_cache()
