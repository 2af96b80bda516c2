"""The version of the whole project: of the distribution, of the engine and of the evaluator."""

__version__ = "0.1.0"
