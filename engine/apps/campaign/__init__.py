# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbered games with a journal: what matches, self-play and tuning share."""

from engine.apps.campaign.campaign import Campaign
from engine.apps.campaign.display import Display, QuietView, row_table, shows_tables, view_of
