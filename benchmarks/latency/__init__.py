# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of one call goes, stage by stage."""
