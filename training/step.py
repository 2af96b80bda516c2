"""Runs a module as a program, and ends it in order when the process that started it is gone.

    python -m training.step MODULE [ARGUMENT …]

Standard input is a pipe whose other end that process holds: its end of file is the sign. The program gets
SIGTERM then, at which matches, self-play and training write down what they have.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run what the command line names."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
