# SPDX-License-Identifier: GPL-3.0-or-later
"""What every program needs: settings, HTTP, keys, files and processes."""
