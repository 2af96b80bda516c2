# SPDX-License-Identifier: GPL-3.0-or-later
"""What launches will take on a GPU that is not at hand: a static model of speed, from machine code and
published figures."""
