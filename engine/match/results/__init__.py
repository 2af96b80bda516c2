"""What the games of a match say: scores, Elo with error bars, SPRT."""
