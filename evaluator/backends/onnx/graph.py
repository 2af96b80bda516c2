"""A thin layer over `onnx.helper` to write graphs as expressions: every operation returns its output's
name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET = 18
"""LayerNormalization needs 17, Mish 18; every onnxruntime since 1.14 has it."""


class Graph:
    """Nodes and constants under construction. Values are strings, the names of edges."""

    def __init__(self, *, fused: bool) -> None:
        """fused: onnxruntime's own operators (com.microsoft) may be used."""
        self.fused = fused
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._shared: dict[tuple[str, bytes], str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, kind: int, shape: list[str | int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, shape: list[str | int]) -> None:
        self.op("Identity", value, output=name)
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, values: NDArray[Any]) -> str:
        """A float32 or int64 array; small ones are stored once."""
        values = np.ascontiguousarray(values)
        key = (f"{values.dtype}{values.shape}", values.tobytes()) if values.size <= 64 else None
        if key is not None and key in self._shared:
            return self._shared[key]
        name = f"c{len(self._constants)}"
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self._constants[name] = TensorProto(
            name=name, data_type=kind, dims=values.shape, raw_data=values.tobytes()
        )
        if key is not None:
            self._shared[key] = name
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(
        self, kind: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """Append a node with one output."""
        return self.ops(kind, 1, *inputs, outputs=[output] if output else None, domain=domain, **attributes)[
            0
        ]

    def ops(
        self,
        kind: str,
        count: int,
        *inputs: str,
        outputs: list[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Append a node with count outputs."""
        index = len(self._nodes)
        outputs = outputs or [f"v{index}" if i == 0 else f"v{index}_{i}" for i in range(count)]
        self._nodes.append(
            helper.make_node(kind, list(inputs), outputs, name=f"{kind}_{index}", domain=domain, **attributes)
        )
        return outputs

    def microsoft(self, kind: str, *inputs: str, **attributes: Any) -> str:
        assert self.fused
        return self.op(kind, *inputs, domain="com.microsoft", **attributes)

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
        opsets = [helper.make_opsetid("", OPSET)]
        if self.fused:
            opsets.append(helper.make_opsetid("com.microsoft", 1))
        model = helper.make_model(graph, opset_imports=opsets, producer_name="wavefront", ir_version=9)
        helper.set_model_props(model, metadata)
        return model
