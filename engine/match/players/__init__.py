"""Who plays in a match: networks of ours, and other UCI engines."""
