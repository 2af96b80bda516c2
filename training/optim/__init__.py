"""What moves the weights: optimisers, their schedule, and the mean of the weights."""
