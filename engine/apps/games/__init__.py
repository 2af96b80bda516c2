# SPDX-License-Identifier: GPL-3.0-or-later
"""Games, openings and journals, and the names of them that others use."""

from engine.apps.games.identity import differences
from engine.apps.games.journal import Journal, JournalError, campaign_journal
from engine.apps.games.openings import Opening, OpeningSettings, read_openings
