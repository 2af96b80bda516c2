"""The evaluator: a service that owns the devices and runs lc0 networks for its clients.

Knows no chess rules.
"""
