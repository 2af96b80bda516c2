# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of networks on positions that an engine searched deeply."""
