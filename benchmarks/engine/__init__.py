"""The engine as a whole: its start, matches, self-play, analysis."""
