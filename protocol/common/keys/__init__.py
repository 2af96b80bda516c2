# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys for CURVE, ZeroMQ's encryption: key pairs in files, allowed clients, trusted services."""
