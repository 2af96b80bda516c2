"""The backends: errors and speed of kernels and networks, on GPUs and processors."""
