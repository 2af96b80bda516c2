# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages: their fields, bytes and compression."""
