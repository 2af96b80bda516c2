"""The commands of `python -m evaluator`, one module each."""
