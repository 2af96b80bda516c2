"""What runs when and where: queues, batch sizes, latency, devices."""
