"""How well networks do on positions that an engine searched deeply."""
