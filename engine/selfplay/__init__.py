"""Self-play: games of one network against itself, and the training data they leave."""
