# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections to an evaluator: addresses, the handshake, ZeroMQ and UNIX sockets."""
