"""What `python -m evaluator kernels` compiles and reports."""
