"""Dense decoders are loaded without transformers' models, with the same weights and answers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from dise_adapters.local.loading import loader, stored
from dise_core import LLM, CheckpointError, LogProbs
from tests.adapters.agreement import logprobs
from tests.checkpoints import write
from tests.reference_backbone import edited

WITHOUT_MODELS = """
import sys
from dise_core import LLM
LLM(sys.argv[1]).score("", [1, 2, 3])
print(*(name for name in sys.modules if name in ("torch._dynamo", "transformers.generation")
        or name.endswith(("modeling_llama", "modeling_qwen2", "modeling_qwen3"))))
"""


@pytest.fixture(params=["llada", "dream", "qwen3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(request.param, tmp_path / request.param)


def by_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LogProbs:
    with monkeypatch.context() as patch:
        patch.setattr(loader, "stored_decoder", lambda *_: None)
        return logprobs(LLM(str(folder)))


def change(folder: Path, **weights: torch.Tensor | None) -> None:
    """Add, replace or (None) remove weights of the checkpoint."""
    with edited(folder) as stored:
        for name, weight in weights.items():
            if weight is None:
                del stored[name]
            else:
                stored[name] = weight


def test_the_answers_are_those_of_the_weights_that_transformers_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loader.stored_decoder
    loaded = []
    monkeypatch.setattr(
        loader, "stored_decoder", lambda *given: loaded.append(model(*given)) or loaded[-1]
    )
    found = logprobs(LLM(str(folder)))
    assert loaded[0] is not None
    expected = by_transformers(folder, monkeypatch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_start_imports_none_of_transformers_models(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MODELS, str(folder)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.mark.parametrize("name", stored.CLASSES)
def test_the_shapes_are_those_of_transformers_module(name: str) -> None:
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10}
    sizes |= {"intermediate_size": 28, "vocab_size": 50, "num_hidden_layers": 2}
    if name == "Qwen2ForCausalLM":
        del sizes["head_dim"]
    model_class: Any = getattr(transformers, name)
    with torch.device("meta"):
        model = model_class(model_class.config_class(**sizes))
    shapes = {part: tuple(weight.shape) for part, weight in model.state_dict().items()}
    assert stored._shapes(sizes, name) == shapes


def test_what_is_wrong_with_weights_is_told_as_ever(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    [norm] = [name for name in weights if name.endswith(("ln_f.weight", "model.norm.weight"))]
    change(folder, **{norm: None})
    with pytest.raises(CheckpointError, match=r"lacks weights: model\.norm\.weight"):
        LLM(str(folder))
    change(folder, **{norm: torch.ones(3)})
    with pytest.raises(CheckpointError, match="has misshapen weights"):
        LLM(str(folder))
    change(folder, **weights, extra=torch.zeros(2))
    with pytest.raises(CheckpointError, match="has extra weights: extra"):
        LLM(str(folder))


def test_a_tied_head_that_is_stored_too_is_left_to_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("qwen3", tmp_path / "qwen3")
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    stored = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    change(folder, **{"lm_head.weight": stored + 1})
    found, expected = logprobs(LLM(str(folder))), by_transformers(folder, monkeypatch)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_type_are_converted(
    folder: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    with edited(folder) as weights:
        weights.update({name: weight.to(dtype) for name, weight in weights.items()})
    found, expected = logprobs(LLM(str(folder))), by_transformers(folder, monkeypatch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
