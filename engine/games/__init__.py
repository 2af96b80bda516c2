"""What matches and self-play share about games of chess."""
