# SPDX-License-Identifier: GPL-3.0-or-later
"""Tuning of search constants by games, with the parts of a match.

spsa        the method: perturbations and steps, as pure functions
config      describes a tuning; from TOML
progress    the state: iterations, results so far, values
job         plays a game with the values of its iteration
runner      controls all of this; journal and PGN
result      values with errors, the command of a test match, JSON data
display     tables and lines
plot        the values over the games as SVG

The tuning of GPU kernels, `wavefront-evaluator tune`, is in evaluator/backends/gpu/tuning.
"""
