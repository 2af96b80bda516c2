"""The UCI protocol: what a GUI says and what it is told."""
