"""The evaluator as a service: its rate, latencies, hostile clients, failures, and hours under load."""
