"""What runs when and where, decided without threads or I/O: queues, batch sizes, placement."""
