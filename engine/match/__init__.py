"""Matches: many games between engines, and numbers one can trust about them.

Data flows one way. `config` says what is to be played, `schedule` and `openings` turn that into numbered
games, `game` plays one between two `players` under the eyes of `adjudication`, and the `GameRecord` that
comes out goes to the PGN, the `journal` and the `standings`, whose numbers come from `statistics` and
`sprt`. `runner` drives it all.
"""
