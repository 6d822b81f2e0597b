"""The judge: any auto-regressive model, against a plain transformers loop."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2ForCausalLM,
    PreTrainedModel,
)

from dise_adapters.families.causal import CAUSAL
from dise_adapters.predictor import predictor_of
from dise_core import LLM, InputError, Read, SamplingParams, ScoringParams, TokenLogProbs
from dise_core.errors import CheckpointError, UnknownNameError
from dise_core.testing import check_mask_predictor
from tests.reference_llada import write_tokenizer
from tests.tiny_causal import checkpoint, gemma2, gpt2, llama
from tests.tiny_format import described, edit


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


@pytest.mark.parametrize("asked", [{}, {"attn_implementation": "eager"}])
def test_a_class_without_sdpa_is_asked_for_eager_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    """As Gemma 2 from transformers 5.20 on."""
    folder, ids = checkpoint(tmp_path, gemma2()), np.arange(9)
    monkeypatch.setattr(Gemma2ForCausalLM, "_supports_sdpa", False)
    read = Read(ids, ids[1:], TokenLogProbs(ids[1:]))
    [reading] = LLM(folder, **asked).predictor.read([read])  # type: ignore[arg-type]
    assert np.abs(reading.logprobs - naive_logprobs(folder, ids.tolist())).max() < 1e-4


@pytest.mark.parametrize("build", [llama, gemma2])
def test_the_adapter_conforms(tmp_path: Path, build) -> None:  # type: ignore[no-untyped-def]
    check_mask_predictor(LLM(checkpoint(tmp_path, build())).predictor)


def test_position_0_has_no_answer(tmp_path: Path) -> None:
    predictor = LLM(checkpoint(tmp_path, llama())).predictor
    ids = np.array([1, 2, 3])
    with pytest.raises(InputError, match="no answer for the first token of a text"):
        predictor.read([Read(ids, np.array([0, 1]), TokenLogProbs(ids[:2]))])


def test_an_auto_regressive_model_scores_by_its_own_perplexity_and_cannot_denoise(
    checkpoint_of: Callable[[str], Path],
) -> None:
    folder = str(checkpoint_of("llama"))
    llm = LLM(folder)
    [answer] = llm.score("abc", "def", ScoringParams(scorer="ar-perplexity"))
    expected = naive_logprobs(folder, [0, 1, 2, 3, 4, 5])[2:]
    score = answer.outputs[0].score
    assert score.value == pytest.approx(expected.mean(), abs=1e-4)
    assert score.log_likelihood == pytest.approx(expected.sum(), abs=3e-4)
    assert score.perplexity == pytest.approx(np.exp(-expected.mean()), rel=1e-4)
    assert [token.logprob for token in answer.outputs[0].tokens] == pytest.approx(
        expected.tolist(), abs=1e-4
    )
    with pytest.raises(
        InputError,
        match=r"scorer 'dise' needs a diffusion language model, and .* is auto-regressive",
    ):
        llm.score("abc", "def")
    with pytest.raises(InputError, match="has no mask token"):
        llm.generate("abc", SamplingParams(scorer="ar-perplexity"))


def sees_later_tokens(model: PreTrainedModel) -> bool:
    """Return whether the logits of the first tokens change with the last one, in transformers' own
    model.
    """
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    with torch.inference_mode():
        one, other = (
            model.eval()(torch.tensor([[5, 6, 7, last]])).logits[0, :3] for last in (8, 9)
        )
    return not torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "llama", "opt"])
@pytest.mark.parametrize("is_decoder", [None, False, True])
def test_no_model_is_claimed_that_sees_the_tokens_to_come(
    tmp_path: Path, kind: str, is_decoder: bool | None
) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 48}
    flag = {} if is_decoder is None else {"is_decoder": is_decoder}
    config = AutoConfig.for_model(
        kind, vocab_size=50, max_position_embeddings=64, pad_token_id=0, **sizes, **flag
    )
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["architectures"] == [type(model).__name__]
    edit(tmp_path / "config.json", is_decoder=is_decoder)
    assert predictor_of(CAUSAL).claims(str(tmp_path)) is not sees_later_tokens(model)


OWN = {
    "AutoConfig": "configuration_x.LlamaConfig",
    "AutoModelForCausalLM": "modeling_x.LlamaForCausalLM",
}

TAKEN: list[dict[str, object]] = [
    {"architectures": ["LLaMAForCausalLM"]},  # of old
    {"auto_map": OWN},  # transformers' own by now
    {"architectures": ["LlamaModel", "LlamaForCausalLM"]},
]


def judge(model_type: str, architecture: str, **more: object) -> dict[str, object]:
    return {"model_type": model_type, "architectures": [architecture], **more}


NO_JUDGES: dict[str, tuple[dict[str, object], str]] = {
    "a bare bert": (judge("bert", "BertModel", is_decoder=True), "architectures BertModel"),
    "roberta": (judge("roberta", "RobertaForCausalLM"), "as is_decoder is not true"),
    "no architectures": ({"architectures": None}, "model_type 'llama' and architectures none"),
    "no list": ({"architectures": "LlamaForCausalLM"}, "architectures none"),
    "another type's class": (judge("llama", "OPTForCausalLM"), "architectures OPTForCausalLM"),
    "no type": ({"model_type": ["llama"]}, "model_type ['llama']"),
    "both directions": ({"is_causal": False}, "it attends in both directions (is_causal is false)"),
    "a Gemma that embeds": (
        judge("gemma3_text", "Gemma3ForCausalLM", use_bidirectional_attention=True),
        "it attends in both directions (use_bidirectional_attention is true)",
    ),
    "ReFusion": (
        {"auto_map": {"AutoModelForCausalLM": "modeling_x.ReFusionForCausalLM"}},
        "it is a diffusion model by its auto_map (ReFusionForCausalLM)",
    ),
    "DiffuLLaMA under another name": (
        {"_name_or_path": "diffusionfamily/diffullama"},
        "it is a diffusion model by the _name_or_path of config.json (diffusionfamily/diffullama)",
    ),
    "code of its own": (
        {"auto_map": {"AutoModel": "someone/repository--modeling_x.OddModel"}},
        "its auto_map asks for code of its own (OddModel), which is not run",
    ),
}


def a_llama(folder: Path, **changes: object) -> str:
    """Return a folder that holds the config.json of a llama with these changes alone."""
    return described(folder, **(judge("llama", "LlamaForCausalLM") | changes))


@pytest.mark.parametrize("fields", TAKEN)
def test_an_auto_regressive_checkpoint_is_claimed(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    assert predictor_of(CAUSAL).claims(a_llama(tmp_path, **fields))


@pytest.mark.parametrize("name", NO_JUDGES)
def test_what_is_no_auto_regressive_model_is_refused_as_a_judge_and_says_what_it_is(
    tmp_path: Path, name: str
) -> None:
    fields, text = NO_JUDGES[name]
    folder = a_llama(tmp_path, **fields)
    assert predictor_of(CAUSAL).claims(folder) is False
    with pytest.raises(UnknownNameError, match=re.escape(text)):
        LLM("countdown", judge=folder)
    if name in ("roberta", "both directions", "ReFusion", "code of its own"):
        with pytest.raises(CheckpointError, match=re.escape(text)):
            LLM(folder, adapter="llama")


def test_a_diffusion_model_is_known_by_its_folders_name(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownNameError, match=r"it is a diffusion model by its name \(DiffuLLaMA-7B\)"
    ):
        LLM(a_llama(tmp_path / "DiffuLLaMA-7B"))
    assert predictor_of(CAUSAL).claims(a_llama(tmp_path / "llama-7b"))


def test_a_checkpoint_without_architectures_loads_where_its_adapter_is_named(
    tmp_path: Path,
) -> None:
    folder = checkpoint(tmp_path, llama())
    edit(tmp_path / "config.json", architectures=None)
    with pytest.raises(UnknownNameError, match="unknown model"):
        LLM(folder)
    ids = np.arange(9)
    [reading] = LLM(folder, adapter="llama").predictor.read(
        [Read(ids, ids[1:], TokenLogProbs(ids[1:]))]
    )
    assert np.abs(reading.logprobs - naive_logprobs(folder, ids.tolist())).max() < 1e-4


def test_a_configuration_without_a_length_is_named(tmp_path: Path) -> None:
    BloomConfig(vocab_size=50, architectures=["BloomForCausalLM"]).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, 50)
    with pytest.raises(CheckpointError, match="max_position_embeddings=null must be a number"):
        LLM(str(tmp_path))
