# SPDX-License-Identifier: GPL-3.0-or-later
"""The onnxruntime backend on the CPU: NetworkSpec -> ONNX graph (model.py) -> session (backend.py)."""
