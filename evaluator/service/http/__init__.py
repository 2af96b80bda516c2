# SPDX-License-Identifier: GPL-3.0-or-later
"""The service over HTTP: health checks, metrics for Prometheus, and the page with its JSON document."""
