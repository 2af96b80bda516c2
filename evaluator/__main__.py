# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator` is the same as the console script `wavefront-evaluator`."""

from evaluator.cli import console

if __name__ == "__main__":
    console()
