# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP endpoints: health checks, metrics for Prometheus, and the status page with its JSON document."""
