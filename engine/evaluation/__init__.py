# SPDX-License-Identifier: GPL-3.0-or-later
"""The link between a search and the evaluator: encoding, connections, sending and receiving batches."""
