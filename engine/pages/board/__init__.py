# SPDX-License-Identifier: GPL-3.0-or-later
"""A chess board for HTML pages: the JavaScript class `Board`, its style and the pieces of python-chess.

board.js is a module without imports. A page loads it as a module, or contains it with its own script in one
`<script type="module">`. The page also contains `pieces()`, once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
SCRIPT, STYLE = FOLDER / "board.js", FOLDER / "board.css"


@cache
def pieces() -> str:
    """Return an invisible SVG element that defines the pieces, with ids such as `white-pawn`.

    It has attributes instead of inline styles, which a Content-Security-Policy may forbid.
    """
    import chess.svg

    def attributes(style: re.Match[str]) -> str:
        return " ".join(
            '{}="{}"'.format(*each.split(":")) for each in style[1].replace(" ", "").split(";") if each
        )

    drawn = re.sub(r'style="([^"]*)"', attributes, "".join(chess.svg.PIECES.values()))
    return f'<svg width="0" height="0" class="pieces" aria-hidden="true"><defs>{drawn}</defs></svg>'
