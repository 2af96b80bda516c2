# SPDX-License-Identifier: GPL-3.0-or-later
"""Between a search and the evaluator: positions encoded, the connection kept, batches sent and received."""
