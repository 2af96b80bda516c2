"""`python -m evaluator` is the same as the console script `wavefront-evaluator`."""

import sys

from evaluator.cli import main

if __name__ == "__main__":
    sys.exit(main())
