"""What each type of weights takes of a machine, tried with a few layers."""

from pathlib import Path

import pytest
import torch

from dise_adapters.families.llada import LLADA
from dise_adapters.local.loading import advice, fits
from dise_adapters.local.loading.advice import Advice
from dise_adapters.predictor import predictor_of
from dise_core import EngineConfig, InputError
from tests.reference_llada import default_config, random_weights, write_checkpoint

CONFIG = default_config(d_model=256, n_layers=6, n_heads=4, n_kv_heads=4, mlp_hidden_size=768)
INT8 = "--quantization int8"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fits, "is_slow", lambda dtype: dtype == torch.float16)
    return write_checkpoint(tmp_path / "llada", CONFIG, random_weights(CONFIG))


def advised(folder: Path, **options: object) -> dict[str, Advice]:
    config = EngineConfig(device="cpu", **options)
    return {way.option: way for way in predictor_of(LLADA).load(str(folder), config).advice()}


def test_each_type_that_is_not_slow_is_tried_unread(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        file.seek(8 + size)
        file.write(b"\xff" * 4096)  # NaN: loading would refuse it
    ways = advised(folder)
    assert list(ways) == [way for way in advice.WAYS if way != "--dtype float16"]
    assert [name for name, way in ways.items() if way.is_default] == ["--dtype float32"]
    assert all((way.scoring or 0) > 0 and (way.writing or 0) > 0 for way in ways.values())
    assert ways["--quantization int4"].memory < ways[INT8].memory < ways["--dtype float32"].memory
    assert [
        name for name, way in advised(folder, quantization="int8").items() if way.is_default
    ] == [INT8]


def test_layers_that_are_not_tried_take_what_those_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = list[int]()

    def seconds(reader: object, of: object, length: int, num_read: int) -> float:
        layers.append(len(reader._body._layers))  # type: ignore[attr-defined]
        return 0.5 + 0.25 * layers[-1] + length / 1000

    monkeypatch.setattr(advice, "_seconds", seconds)
    for way in advised(folder).values():
        assert way.scoring == pytest.approx(0.5 + 6 * 0.25 + 0.128)
        assert way.writing == pytest.approx(64 * (0.5 + 6 * 0.25 + 0.192))
    assert set(layers) == {1, 3}


def test_what_is_not_free_is_told_and_not_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {name: way.memory for name, way in advised(folder).items()}
    free = memory["--dtype bfloat16"] * fits.GIB
    for module in (advice, fits):
        monkeypatch.setattr(module, "free_bytes", lambda _: free)
    ways = advised(folder)
    assert {name: way.memory for name, way in ways.items()} == memory
    assert {name for name, way in ways.items() if way.scoring is None} == {
        name for name, size in memory.items() if size * fits.GIB > free
    }


def test_a_model_that_transformers_computes_is_refused(folder: Path) -> None:
    other = default_config(d_model=64, n_heads=2, n_kv_heads=2, mlp_hidden_size=96)
    extra = random_weights(other) | {"model.transformer.extra.weight": torch.ones(2, 2)}
    odd = write_checkpoint(folder.parent / "odd", other, extra)
    with pytest.raises(InputError, match="is not one of them"):
        advised(odd)
