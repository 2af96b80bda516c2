# SPDX-License-Identifier: GPL-3.0-or-later
"""A thin layer over `onnx.helper` to write graphs as expressions: every operation returns its output's
name."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET = 18
"""LayerNormalization needs 17; every onnxruntime since 1.14 has 18."""


class Graph:
    """A graph under construction. Values are strings, the names of edges.

    half: store float32 constants in fp16, so that everything is computed in it. Outputs stay float32.
    """

    def __init__(self, *, half: bool = False) -> None:
        self.half = half
        self._domains = {""}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[Hashable, onnx.TensorProto] = {}
        self._alive: list[NDArray[Any]] = []  # keeps the ids of constants from being reused
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, kind: int, shape: list[str | int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, shape: list[str | int]) -> None:
        if self.half:
            self.op("Cast", value, output=name, to=TensorProto.FLOAT)
        else:
            self.op("Identity", value, output=name)
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, values: NDArray[Any]) -> str:
        """Add a constant of any dtype. The same array, or a small equal one, is stored once."""
        key = (values.dtype.str, values.shape, values.tobytes()) if values.size <= 64 else id(values)
        if key in self._constants:
            return self._constants[key].name
        stored = values.astype(np.float16) if self.half and values.dtype == np.float32 else values
        tensor = TensorProto(
            name=f"c{len(self._constants)}",
            data_type=helper.np_dtype_to_tensor_dtype(stored.dtype),
            dims=stored.shape,
            raw_data=np.ascontiguousarray(stored).tobytes(),
        )
        self._constants[key] = tensor
        self._alive.append(values)
        return str(tensor.name)

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(
        self, kind: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """Append a node with one output, and return the output's name."""
        self._domains.add(domain)
        index = len(self._nodes)
        output = output or f"v{index}"
        node = helper.make_node(
            kind, list(inputs), [output], name=f"{kind}_{index}", domain=domain, **attributes
        )
        self._nodes.append(node)
        return output

    def number(self, x: str) -> str:
        """Convert to the graph's floating-point type."""
        return self.op("Cast", x, to=TensorProto.FLOAT16 if self.half else TensorProto.FLOAT)

    # Shapes: 0 copies the dimension of the input, -1 is inferred.
    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.integers(*shape))

    def transpose(self, x: str, *order: int) -> str:
        return self.op("Transpose", x, perm=list(order))

    def slice(self, x: str, axis: int, start: int, end: int) -> str:
        return self.op("Slice", x, self.integers(start), self.integers(end), self.integers(axis))

    def model(self, name: str, metadata: dict[str, str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, list(self._constants.values())
        )
        opsets = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in sorted(self._domains)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="wavefront", ir_version=9)
        helper.set_model_props(model, metadata)
        return model
