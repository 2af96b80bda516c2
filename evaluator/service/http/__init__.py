"""The service over HTTP: health checks, metrics for Prometheus, and the page with its JSON document."""
