# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP server of evaluator and engine: starlette on uvicorn's protocols, with limits on bytes,
connections and time. Imported only where HTTP is on."""
