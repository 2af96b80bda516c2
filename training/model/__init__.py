"""The network in PyTorch, to and from `evaluator.network.spec`."""
