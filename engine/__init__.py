"""The search process: UCI, MCTS over a native core, and the Python API."""
