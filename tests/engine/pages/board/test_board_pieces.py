# SPDX-License-Identifier: GPL-3.0-or-later
"""The pieces that pages with a board contain."""

from xml.etree import ElementTree

from engine.pages.board import pieces


def test_pieces_are_defined_once_each_without_inline_styles() -> None:
    drawing = ElementTree.fromstring(pieces())
    ids = [element.get("id") for element in drawing.iter() if element.get("id")]
    kinds = ("pawn", "knight", "bishop", "rook", "queen", "king")
    assert sorted(filter(None, ids)) == sorted(
        f"{side}-{kind}" for side in ("white", "black") for kind in kinds
    )
    assert not [element for element in drawing.iter() if element.get("style")]
