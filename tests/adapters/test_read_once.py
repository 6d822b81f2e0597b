"""What a load asks of a checkpoint's files, it asks once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dise_adapters.checkpoint import gguf, hub, weights
from dise_core import LLM, Read, TokenLogProbs
from tests import tiny_gguf
from tests.commands import Dise
from tests.gguf_files import MODELS, convert


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often the head of a GGUF file of some size was parsed."""
    parsed = Counter[int]()

    class CountedHead(gguf.Head):
        def __init__(self, data: Any) -> None:
            parsed[len(data)] += 1
            super().__init__(data)

    monkeypatch.setattr(gguf, "Head", CountedHead)
    return parsed


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each JSON file was read."""
    read = Counter[str]()
    read_object = hub.read_object

    def counted(path: Path) -> Any:
        read[path.name] += 1
        return read_object(path)

    for module in (hub, weights):
        monkeypatch.setattr(module, "read_object", counted)
    return read


def answer(llm: LLM) -> None:
    ids = np.array([2, 3, 4])
    llm.predictor.read([Read(ids, np.arange(1, 3), TokenLogProbs(ids[1:]))])


def test_weights_are_read_in_the_order_of_their_files(tmp_path: Path) -> None:
    names = {"b": ["x", "w"], "a": ["z", "y"]}  # safetensors writes the longest types first
    index = {name: f"{file}.safetensors" for file in names for name in names[file]}
    for file, (long, short) in names.items():
        parts = {short: torch.zeros(2, dtype=torch.int8), long: torch.zeros(2)}
        save_file(parts, tmp_path / f"{file}.safetensors")
    (tmp_path / weights.INDEX).write_text(json.dumps({"weight_map": index}))
    read = weights.Safetensors(tmp_path).read(["w", "x", "y", "z"], torch.device("cpu"))
    assert [name for name, _ in read] == ["z", "y", "x", "w"]


@pytest.mark.parametrize("name", [*MODELS, "judge"])
def test_the_head_of_a_gguf_file_is_parsed_once_a_load(
    name: str, heads: Counter[int], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    if name == "judge":
        tiny_gguf.write(path)
    else:
        convert(MODELS[name], MODELS[name].folder(tmp_path / "original"), path, "Q8_0")
    for loads, revision in enumerate((None, "main"), start=1):
        answer(LLM(str(path), revision=revision))
        assert heads == {path.stat().st_size: loads}


def test_the_command_parses_the_head_of_a_gguf_file_once(
    dise: Dise, heads: Counter[int], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    convert(MODELS["llada"], MODELS["llada"].folder(tmp_path / "original"), path)
    run = dise("generate", "a b", "--model", path, "--max-tokens", 4, "--block-length", 4)
    assert run.code == 0, run.err
    assert heads == {path.stat().st_size: 1}


@pytest.mark.parametrize("family", ["llada", "llada-moe"])
def test_config_and_index_are_read_once_a_load(
    family: str, objects: Counter[str], tmp_path: Path
) -> None:
    folder = MODELS[family].folder(tmp_path / "model")
    single = folder / weights.SINGLE
    [name, *_] = weights.Safetensors(folder).stored
    single.rename(folder / "all.safetensors")
    index = {"metadata": {}, "weight_map": {name: "all.safetensors"}}
    (folder / weights.INDEX).write_text(json.dumps(index))
    answer(LLM(str(folder)))
    assert objects == {"config.json": 1, weights.INDEX: 1}
