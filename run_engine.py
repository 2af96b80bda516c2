"""Entry point of a checkout: the UCI engine, or with a subcommand its tools. The same as `wavefront`."""

import sys

from engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
