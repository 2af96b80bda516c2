# SPDX-License-Identifier: GPL-3.0-or-later
"""Playing below full strength: levels, human thinking times, contempt."""
