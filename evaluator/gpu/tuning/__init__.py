"""The measured choice among kernels and libraries."""
