# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training`: the same as the console script `wavefront-training`."""

from training.cli import console

if __name__ == "__main__":
    console()
