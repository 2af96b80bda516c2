# SPDX-License-Identifier: GPL-3.0-or-later
"""ONNX Runtime's other providers: names, plug-ins, fixed shapes, refusals, and what `auto` makes of them.

The stand-in is onnxruntime's own CPU provider under another name, so that sessions, fixed shapes and fp16 are
real. It is added by its device, as a plug-in's would be.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from evaluator.backends import BackendError, auto, open_backend
from evaluator.backends.common import crashes
from evaluator.backends.common.base import Backend, NotFiniteError
from evaluator.backends.common.crashes import Phase
from evaluator.backends.common.probe import probe_batch, uneven_batch
from evaluator.backends.onnx import model, provider_backend, providers
from evaluator.backends.onnx.backend import OnnxBackend, runs_on_gpu
from evaluator.backends.onnx.graph import Graph
from evaluator.backends.onnx.provider_backend import ProviderBackend
from evaluator.backends.onnx.providers import (
    PROVIDERS,
    FoundProvider,
    OrtProvider,
    ProviderDevice,
    found_providers,
)
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.backends.onnx.sessions import CPU, open_session
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.commands.devices import provider_facts
from evaluator.devices.opening.loading import Loader, shipped_network
from evaluator.network import SHIPPED_GPU_NETWORK, SHIPPED_NETWORK
from evaluator.network.random_network import random_network
from evaluator.settings import DeviceSettings
from protocol.batch import PositionBatch
from tests.evaluator.service.harness import devices
from tests.paths import CACHE

NETWORK = random_network("tiny-attention")
SMALL = "1+8+16"
ONE_THREAD = DeviceSettings(tuning="before", threads=1)


def stand_in(name: str = "directml", kind: str = "GPU", key: str = CPU) -> ProviderDevice:
    handle = next(each for each in ort.get_ep_devices() if each.ep_name == CPU)
    return ProviderDevice(OrtProvider(name, key), kind, "stand-in", "stand-in 1.0", "0", handle)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these devices be found, and their batch sizes be few."""
    monkeypatch.setattr(provider_backend, "BUCKETS", (1, 8, 32))

    def found(*devices: ProviderDevice, **problems: str) -> None:
        monkeypatch.setattr(providers, "found_providers", lambda: FoundProvider(devices, problems))

    return found


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.backends.gpu.backend.unavailable", lambda: "hidden by the test")


@pytest.fixture
def other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that computes something else than the network."""
    from evaluator.backends.onnx.model import build_model

    wrong = build_model(random_network("tiny-attention", seed=1), packed=True).SerializeToString()
    monkeypatch.setattr(provider_backend, "open_on", lambda *_, **__: open_session(wrong, 1))


# --- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "Cpu", "directml", "DirectML"])
def test_a_named_provider_is_opened_in_any_case(install: Callable[..., None], name: str) -> None:
    install(stand_in())
    with open_backend("onnx", NETWORK, ONE_THREAD, provider=name) as backend:
        assert isinstance(backend, OnnxBackend if name.lower() == "cpu" else ProviderBackend)
        assert name.lower() == "cpu" or backend.device == "directml GPU stand-in, fp16 (stand-in 1.0)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "vulkan"}, "provider 'vulkan' is not one of cpu, directml, migraphx, openvino"),
        ({"provider": "webgpu"}, "webgpu cannot be used: onnxruntime .* has no such provider; docs/how-to/"),
        ({"provider": "openvino"}, "openvino cannot be used: its library is missing"),
        ({"provider": "directml", "device": 1}, r"has no device 1; there are: 0 \(directml GPU stand-in\)"),
        ({"provider": "directml", "device": "amd:0"}, "device 'amd:0' is not a number"),
        ({"provider": "directml", "precision": "int4"}, "precision 'int4' is not one of fp16, fp32"),
        ({"provider": "directml", "int8": True}, "int8 is for the CPU"),
        ({"provider": "directml", "buckets": "0+8"}, "write sizes from 1"),
        ({"precision": "fp16"}, "device, precision and buckets need another provider"),
    ],
)
def test_an_unusable_option_is_refused_with_the_remedy(
    install: Callable[..., None], options: dict[str, Any], message: str
) -> None:
    install(stand_in(), openvino="its library is missing")
    with pytest.raises(BackendError, match=message):
        open_backend("onnx", NETWORK, ONE_THREAD, **options)


def test_each_provider_but_the_cpu_has_its_own_runtime_name() -> None:
    assert {each.key for each in PROVIDERS.values()} <= {*ort.get_all_providers()}


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-resnet", "tiny-attention"])
@pytest.mark.parametrize("kind", ["GPU", "CPU"])
def test_values_are_exact_in_fixed_shapes(install: Callable[..., None], name: str, kind: str) -> None:
    install(stand_in(kind=kind))
    network = random_network(name)
    batch = uneven_batch([3, 35, 0, 20, 1, 7, 9, 11, 2, 5, 30], seed=3)
    expected = ReferenceBackend(network).evaluate(batch)
    with open_backend("onnx", network, ONE_THREAD, provider="directml", buckets=SMALL) as backend:
        assert (backend.buckets, backend.max_batch) == ((1, 8, 16), 16)
        assert backend.on_host == (kind == "CPU")
        result = backend.evaluate(batch)
        tolerance = backend.tolerance
    assert np.abs(result.logits - expected.logits).max() <= tolerance.logits
    assert np.abs(result.wdl - expected.wdl).max() <= tolerance.wdl
    assert np.abs(result.moves_left - expected.moves_left).max() <= tolerance.moves_left


def test_a_session_has_the_shape_of_its_batch_size(install: Callable[..., None]) -> None:
    install(stand_in())
    with open_backend("onnx", NETWORK, ONE_THREAD, provider="directml", buckets=SMALL) as backend:
        assert isinstance(backend, ProviderBackend)
        shapes = {size: session.get_inputs()[0].shape for size, session in backend._sessions.items()}
    assert shapes == {size: [size, 112, 64] for size in (1, 8, 16)}


def test_wrong_values_are_refused(install: Callable[..., None], other_weights: None) -> None:
    install(stand_in())
    with pytest.raises(BackendError, match="batches of 1: "):
        open_backend("onnx", NETWORK, ONE_THREAD, provider="directml")


def test_a_provider_that_computes_no_operator_is_refused(install: Callable[..., None]) -> None:
    install(stand_in())
    with open_backend("onnx", NETWORK, ONE_THREAD, provider="directml") as backend:
        assert isinstance(backend, ProviderBackend)
        on_cpu = backend._sessions[1]
        with pytest.raises(BackendError, match="directml GPU stand-in"):
            providers._require_nodes(on_cpu, stand_in(key="DmlExecutionProvider"))


def test_a_position_that_is_not_finite_is_refused(install: Callable[..., None]) -> None:
    """OpenVINO's relu makes a number of NaN."""
    install(stand_in())
    batch = probe_batch(2)
    batch.positions["rule50"][1] = np.nan
    with (
        open_backend("onnx", NETWORK, ONE_THREAD, provider="directml") as backend,
        pytest.raises(NotFiniteError),
    ):
        backend.evaluate(batch)


def test_mish_in_fp16_does_not_overflow() -> None:
    graph = Graph(half=True)
    x = graph.number(graph.input("x", TensorProto.FLOAT, ["n"]))
    graph.output(model._mish(graph, x), "y", ["n"])
    values = np.linspace(-12, 200, 400, dtype=np.float32)
    session = open_session(graph.model("mish", {}).SerializeToString(), 1)
    (result,) = session.run(None, {"x": values})
    expected = values * np.tanh(np.log1p(np.exp(values.astype(np.float64))))
    assert np.abs(result - expected).max() <= 0.1  # fp16 near 200 has steps of 0.125
    small = values < 8
    assert np.abs(result - expected)[small].max() <= 0.005


# --- finding ------------------------------------------------------------------------------------------------


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `found_providers` search again, without the plug-ins of this machine."""
    found_providers.cache_clear()
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CPU])
    yield
    found_providers.cache_clear()


def test_builds_with_a_provider_are_found(searched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["DmlExecutionProvider", CPU])
    (device,) = found_providers().devices
    assert (str(device), device.source) == ("directml GPU", f"onnxruntime {ort.__version__}")


def test_a_gpu_goes_before_the_cpu_and_an_npu(searched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxruntime.capi import _pybind_state  # noqa: TID251 - runtime.py has imported onnxruntime

    monkeypatch.setattr(ort, "get_available_providers", lambda: ["OpenVINOExecutionProvider", CPU])
    listed = ["CPU", "GPU.0", "GPU.1", "NPU"]
    monkeypatch.setattr(_pybind_state, "get_available_openvino_device_ids", lambda: listed, raising=False)
    assert [each.number for each in found_providers().of("openvino")] == ["GPU.0", "GPU.1", "CPU", "NPU"]
    assert [str(each) for each in providers.for_auto()] == ["openvino GPU"]


@pytest.mark.parametrize(
    ("name", "kind", "number", "half", "options"),
    [
        ("directml", "GPU", "1", True, {"device_id": "1"}),
        ("cuda", "GPU", "0", False, {"device_id": "0", "use_tf32": "0"}),
        ("tensorrt", "GPU", "0", True, {"device_id": "0", "trt_fp16_enable": "1"}),
        ("coreml", "GPU", "0", True, {"ModelFormat": "MLProgram", "RequireStaticInputShapes": "1"}),
        (
            "openvino",
            "GPU",
            "GPU.1",
            True,
            {"device_type": "GPU.1", "load_config": '{"GPU": {"INFERENCE_PRECISION_HINT": "f16"}}'},
        ),
    ],
)
def test_options_of_a_provider_name_its_device_and_precision(
    name: str, kind: str, number: str, half: bool, options: dict[str, str]
) -> None:
    device = ProviderDevice(PROVIDERS[name], kind, "", "package", number)
    assert providers._options_of(device, half=half, threads=2) == options


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_provider_is_refused_when_it_cannot_open(searched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["MIGraphXExecutionProvider", CPU])
    with pytest.raises(BackendError, match=r"MIGraphX|migraphx"):
        open_backend("onnx", NETWORK, ONE_THREAD, provider="migraphx")


def plugin(folder: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a plug-in for webgpu whose library has a path."""
    package = folder / "onnxruntime_ep_webgpu"
    package.mkdir()
    (package / "__init__.py").write_text(f"def get_library_path():\n    return {library!r}\n")
    (package / "lib.so").write_bytes(b"not a library")
    described = folder / "onnxruntime_ep_webgpu-0.4.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-ep-webgpu\nVersion: 0.4\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "onnxruntime_ep_webgpu", raising=False)


def test_plug_in_registers_by_path(searched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = str(tmp_path / "onnxruntime_ep_webgpu" / "lib.so")
    registered: list[tuple[str, str]] = []
    monkeypatch.setattr(ort, "register_execution_provider_library", lambda *each: registered.append(each))
    plugin(tmp_path, library, monkeypatch)
    problems = found_providers().problems
    assert registered == [("onnxruntime-ep-webgpu", library)]
    assert "onnxruntime-ep-webgpu 0.4" in problems["webgpu"]
    assert "supports no device of this machine" in problems["webgpu"]


def test_a_plug_in_whose_library_is_elsewhere_is_not_loaded(
    searched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "register_execution_provider_library", lambda *_: pytest.fail("loaded"))
    plugin(tmp_path, str(tmp_path / "elsewhere.so"), monkeypatch)
    assert "is not in its folder" in found_providers().problems["webgpu"]


def test_others_are_listed_if_one_fails(searched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = ["OpenVINOExecutionProvider", "DmlExecutionProvider", CPU]
    monkeypatch.setattr(ort, "get_available_providers", lambda: built_in)
    found = found_providers()  # this build cannot list OpenVINO's devices
    assert [str(each) for each in found.devices] == ["directml GPU"]
    assert f"onnxruntime {ort.__version__}: " in found.problems["openvino"]


def test_broken_plug_in_is_reported(searched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, str(tmp_path / "onnxruntime_ep_webgpu" / "lib.so"), monkeypatch)
    assert "lib.so" in found_providers().problems["webgpu"]


def test_the_devices_command_lists_each_device_with_its_number(install: Callable[..., None]) -> None:
    found = FoundProvider((stand_in(), stand_in(), stand_in("webgpu")), {})
    listed = [(each["provider"], each["device"]) for each in provider_facts(found)]
    assert listed == [("directml", 0), ("directml", 1), ("webgpu", 0)]


# --- auto ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize(("speed", "chosen"), [(2000.0, ProviderBackend), (500.0, OnnxBackend)])
def test_auto_takes_a_provider_only_if_it_is_faster_than_the_cpu(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, speed: float, chosen: type
) -> None:
    def measured(backend: Backend, batch: PositionBatch) -> float:
        return speed if isinstance(backend, ProviderBackend) else 1000.0

    install(stand_in())
    monkeypatch.setattr(auto, "_positions_per_second", measured)
    with open_backend("auto", NETWORK, ONE_THREAD) as backend:
        assert isinstance(backend, chosen)


@pytest.mark.usefixtures("without_gpu", "other_weights")
def test_auto_reports_a_provider_with_wrong_values_and_takes_the_cpu(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    install(stand_in())
    with caplog.at_level(logging.WARNING), open_backend("auto", NETWORK, ONE_THREAD) as backend:
        assert isinstance(backend, OnnxBackend)
    (line,) = [each for each in caplog.messages if "provider" in each]
    assert line.startswith("provider directml is not used: directml GPU stand-in, fp16 (stand-in 1.0) ")
    assert "computes wrong values" in line


@pytest.mark.usefixtures("without_gpu")
def test_auto_names_unusable_plug_in(install: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    install(webgpu="its library does not load")
    with caplog.at_level(logging.WARNING), open_backend("auto", NETWORK, ONE_THREAD) as backend:
        assert isinstance(backend, OnnxBackend)
    assert "provider webgpu is not used: its library does not load" in caplog.messages


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("device", [stand_in("openvino", "CPU"), stand_in("openvino", "NPU")])
def test_auto_leaves_others_than_gpus_alone(install: Callable[..., None], device: ProviderDevice) -> None:
    install(device)
    assert providers.for_auto() == []


# --- crashes ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_gpu")
def test_a_device_that_crashed_a_process_is_not_opened_again(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    device = stand_in()
    install(device)
    crashes.add(device.subject, Phase.OPENING, "SIGSEGV")
    with pytest.raises(BackendError, match=r"SIGSEGV.*--retry-gpu"):
        open_backend("onnx", NETWORK, ONE_THREAD, provider="directml")
    with open_backend("auto", NETWORK, ONE_THREAD) as backend:
        assert isinstance(backend, OnnxBackend)
    assert "provider directml is not used" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_a_crash_of_a_providers_library_is_recorded(tmp_path: Path) -> None:
    program = """
import os
from evaluator.backends.onnx import provider_backend
from evaluator.backends.common import crashes
from evaluator.network.random_network import random_network
from tests.evaluator.backends.test_onnx_providers import stand_in
crashes.record_crashes()
provider_backend.open_on = lambda *_, **__: os.abort()
provider_backend.ProviderBackend(random_network("tiny-attention"), stand_in(), half=True)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60, stderr=subprocess.DEVNULL)
    assert done.returncode < 0
    crash = crashes.excluded(stand_in().subject)
    assert crash is not None
    assert crash.phase is Phase.OPENING


# --- the service --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "network"),
    [
        ("onnx:provider=directml", SHIPPED_GPU_NETWORK),
        ("onnx:provider=openvino", SHIPPED_NETWORK),
        ("onnx:provider=cuda", SHIPPED_NETWORK),
        ("onnx", SHIPPED_NETWORK),
    ],
)
def test_a_named_gpu_gets_the_larger_network(install: Callable[..., None], spec: str, network: Path) -> None:
    install(stand_in(), stand_in("openvino", "CPU"))
    assert shipped_network([spec]) == network
    assert not runs_on_gpu({})


def test_the_standby_of_a_provider_on_a_gpu_is_the_cpu(install: Callable[..., None]) -> None:
    install(stand_in())
    loader = Loader(devices("onnx:provider=directml"))
    with open_backend("onnx", NETWORK, ONE_THREAD, provider="directml") as failed:
        standby = loader._open_standby(NETWORK, failed)
    assert isinstance(standby.backend, OnnxBackend)
    standby.backend.close()
