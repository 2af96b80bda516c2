# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0 networks in onnxruntime on the CPU: NetworkSpec -> ONNX graph (model.py) -> session (backend.py)."""
