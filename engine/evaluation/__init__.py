"""Between a search and the evaluator: positions encoded, the connection kept, batches sent and received."""
