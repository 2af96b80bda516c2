# SPDX-License-Identifier: GPL-3.0-or-later
"""Training imports these modules of the engine, the evaluator and the protocol, and no others."""

import ast

from tests.paths import REPOSITORY

MODULES = {
    *("engine._core", "engine.apps.campaign", "engine.apps.games", "engine.apps.match.players.uci_client"),
    *("engine.apps.shards", "engine.evaluation.errors", "engine.evaluation.link.link"),
    *("engine.evaluation.link.process", "engine.evaluation.link.requests"),
    *("engine.options", "engine.options.flags", "engine.options.tables"),
    *("engine.search.limits", "engine.search.player.network_constants", "engine.search.pool"),
    *("engine.search.report", "engine.workers", "engine.workers.executor"),
    *("evaluator.backends", "evaluator.backends.onnx.backend", "evaluator.backends.reference.backend"),
    *("evaluator.network", "protocol", "protocol.common", "protocol.common.commands"),
    *("protocol.common.extras", "protocol.common.files", "protocol.common.folders"),
    *("protocol.common.outputs", "protocol.common.printing", "protocol.common.processes"),
    *("protocol.common.processors", "protocol.common.settings.sources", "protocol.common.settings.spec"),
}


def imported() -> set[str]:
    nodes = (
        node
        for path in (REPOSITORY / "training").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {each for each in modules if each.partition(".")[0] in ("engine", "evaluator", "protocol")}


def test_training_imports_a_fixed_list_of_modules() -> None:
    assert imported() == MODULES
