"""The judge: any auto-regressive model, against a plain transformers loop."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from dise_adapters.hub import read_config
from dise_core import LLM, InputError, Read, SamplingParams, ScoringParams, TokenLogProbs
from dise_core.errors import ModelError
from dise_core.testing import ToyPredictor, check_mask_predictor
from tests.reference_llada import write_tokenizer

SHAPE = {"vocab_size": 50, "eos_token_id": 48, "bos_token_id": 40}


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(**SHAPE, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
    )


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(**SHAPE, n_embd=32, n_layer=2, n_head=2, n_positions=64))


def gemma2() -> PreTrainedModel:
    """A model that caps its logits after the head."""
    config = Gemma2Config(
        **SHAPE, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        intermediate_size=48, final_logit_softcapping=1.0,
    )  # fmt: skip
    return Gemma2ForCausalLM(config)


def checkpoint(folder: Path, model: PreTrainedModel) -> str:
    read_config.cache_clear()
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    write_tokenizer(folder, 50)
    return str(folder)


def naive_logprobs(folder: str, ids: list[int]) -> np.ndarray:
    """Return log p(token i | tokens before it) for i = 1..N-1, one text at a time, all logits."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
    return logprobs[range(len(ids) - 1), ids[1:]].numpy()


@pytest.mark.parametrize("build", [llama, gpt2, gemma2])
def test_log_probabilities_agree_with_a_plain_loop(tmp_path: Path, build) -> None:  # type: ignore[no-untyped-def]
    folder = checkpoint(tmp_path, build())
    random = np.random.default_rng(0)
    texts = [random.integers(0, 50, length) for length in (2, 9, 10, 40)]
    predictor = LLM(folder).predictor
    reads = [Read(ids, np.arange(1, len(ids)), TokenLogProbs(ids[1:])) for ids in texts]
    for ids, reading in zip(texts, predictor.read(reads), strict=True):
        assert np.abs(reading.logprobs - naive_logprobs(folder, ids.tolist())).max() < 1e-4


@pytest.mark.parametrize("build", [llama, gemma2])
def test_the_adapter_conforms(tmp_path: Path, build) -> None:  # type: ignore[no-untyped-def]
    check_mask_predictor(LLM(checkpoint(tmp_path, build())).predictor)


def test_position_0_has_no_answer(tmp_path: Path) -> None:
    predictor = LLM(checkpoint(tmp_path, llama())).predictor
    ids = np.array([1, 2, 3])
    with pytest.raises(InputError, match="no answer for the first token of a text"):
        predictor.read([Read(ids, np.array([0, 1]), TokenLogProbs(ids[:2]))])


def test_an_auto_regressive_model_scores_by_its_own_perplexity_and_cannot_denoise(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, llama())
    llm = LLM(folder)
    [answer] = llm.score("abc", "def", ScoringParams(scorer="ar-perplexity"))
    expected = naive_logprobs(folder, [0, 1, 2, 3, 4, 5])[2:]
    score = answer.outputs[0].score
    assert score.value == pytest.approx(expected.mean(), abs=1e-4)
    assert score.log_likelihood == pytest.approx(expected.sum(), abs=3e-4)
    assert score.perplexity == pytest.approx(np.exp(-expected.mean()), rel=1e-4)
    assert [token.logprob for token in answer.outputs[0].tokens] == pytest.approx(expected.tolist(), abs=1e-4)
    with pytest.raises(InputError, match=r"scorer 'dise' needs a diffusion language model, and .* is auto-regressive"):
        llm.score("abc", "def")
    with pytest.raises(InputError, match="has no mask token"):
        llm.generate("abc", SamplingParams(scorer="ar-perplexity"))


def test_a_judge_must_be_auto_regressive(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="judge 'toy' is no auto-regressive model"):
        LLM(checkpoint(tmp_path, llama()), judge=ToyPredictor())


def test_a_gguf_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"there is no file '/no/such/model\.gguf'"):
        LLM("countdown", judge="/no/such/model.gguf")


def test_a_broken_gguf_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"cannot load .*broken\.gguf"):
        LLM("countdown", judge=str(path))
