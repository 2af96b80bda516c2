"""What the engine and the evaluator say to each other: batches, messages, their codec and a client."""
