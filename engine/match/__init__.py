# SPDX-License-Identifier: GPL-3.0-or-later
"""Matches: many games between engines, and numbers one can trust about them.

Data flows one way. `config` says what is to be played; `schedule` turns that into numbered games; `job` has
`game` play each between two `players` under the eyes of `adjudication`; the `GameRecord` that comes out goes
to the `archive` (PGN and journal) and to `results`. `runner` drives it all.
"""
