# SPDX-License-Identifier: GPL-3.0-or-later
"""What several backends share: the interface, caches, child processes, progress."""
