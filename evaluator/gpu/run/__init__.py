"""A plan on a device: buffers, launches, batches in flight."""
