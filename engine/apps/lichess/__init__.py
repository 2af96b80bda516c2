# SPDX-License-Identifier: GPL-3.0-or-later
"""A provider for lichess's external-engine protocol: its analysis board shows searches of this engine.

broker.py     HTTP: registration at lichess, jobs and answers at the broker
provider.py   sessions with their trees, and one thread for each running job
"""
