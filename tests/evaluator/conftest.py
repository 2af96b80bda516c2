# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings for every test of the evaluator."""

import os

# Tests run side by side on few cores, where the spinning threads of several BLAS pools starve each other: the
# same test took 0.5 s alone and 50 s in company. Read when numpy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
