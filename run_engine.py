"""Entry point of a checkout: the UCI engine, or with a subcommand its tools. The same as `wavefront`."""

import sys

try:
    from engine.cli import console
except ImportError as error:  # No native core, or one of other sources: the message says what to do.
    sys.exit(f"wavefront: {error}")
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    console()
