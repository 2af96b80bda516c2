# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to an evaluator: start or connect, monitor, reconnect and fail over."""
