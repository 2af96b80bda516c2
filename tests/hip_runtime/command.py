# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m tests.hip_runtime.command COMMAND ...`: a command of the evaluator on a machine that has AMD's
driver. Its ROCm is what ROCM_PATH names, usually the stand-in; what that is, its own variables say."""

import os
import sys

from evaluator.backends.gpu.driver import discovery
from evaluator.cli import main
from evaluator.commands import verify

AMD_NODES = (os.devnull,)
"""In place of /dev/kfd, which would show that there is a driver."""

if __name__ == "__main__":
    discovery.DEVICE_NODES["amd"] = AMD_NODES
    # A child would not have these nodes.
    setattr(verify, "run_in_child", lambda function, *given: function(*given))  # noqa: B010
    sys.exit(main())
