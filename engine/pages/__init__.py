# SPDX-License-Identifier: GPL-3.0-or-later
"""All files for browsers: the web page, the pages of reviews and the board."""

from pathlib import Path

FOLDER = Path(__file__).parent
