"""The connection to an evaluator: started or configured, watched, and replaced."""
