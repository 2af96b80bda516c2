# SPDX-License-Identifier: GPL-3.0-or-later
"""Matches: many games between engines, and their statistics.

Data flows one way. `config` describes the match, and `schedule` numbers its games. `job` plays each with
`game` between two `players`, which `adjudication` may end. The `GameRecord` goes to the `archive` (PGN and
journal) and to `results`. `runner` controls all of this.
"""
