"""A scripted evaluator that shows the author of a client what the client does wrong."""
