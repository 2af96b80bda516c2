"""Import this before the packages that a benchmark measures in its own process: those of this checkout are
then measured, whatever is installed. The compiled cores are the installed ones."""

from __future__ import annotations

import sys

from installation import REPOSITORY

sys.path.insert(0, str(REPOSITORY))
