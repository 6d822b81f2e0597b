"""LLM.from_model: modules in memory answer as transformers computes them; and the adapter of the
docs for a class that transformers lacks.
"""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from dise_app import create_app
from dise_core import LLM, AsyncLLM, Causal, InputError, SamplingParams, ScoringParams
from dise_core.testing import check_mask_predictor
from tests import reference_a2d
from tests.adapters.agreement import assert_alike
from tests.pages import ROOT, python_of, titled

NAMES = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz ", "<mask>"]
PROMPTS, RESPONSES = ["<s>abc", "<s>a question"], ["some words", "no"]


def tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """Return one of letters with RoBERTa's special tokens, which pads and cuts."""
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(NAMES)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    backend.enable_truncation(2)
    backend.enable_padding(length=40)
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names | special)


MASKED = {"mask_token": "<mask>"}


def roberta() -> RobertaForMaskedLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = RobertaConfig(
        vocab_size=len(NAMES), num_hidden_layers=2, initializer_range=0.5,
        max_position_embeddings=42, **sizes,
    )  # fmt: skip
    return RobertaForMaskedLM(config).train()


def naive_scores(module: RobertaForMaskedLM) -> list[float]:
    """Return the mean log-probability of each response's tokens, all texts in one batch
    that is padded, as transformers has it.
    """
    texts = [
        [0, *(NAMES.index(letter) for letter in prompt.removeprefix("<s>") + response), 2]
        for prompt, response in zip(PROMPTS, RESPONSES, strict=True)
    ]
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[1] * (width - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    was_training, _ = module.training, module.eval()
    with torch.no_grad():
        logprobs = module(ids, attention_mask=mask).logits.double().log_softmax(-1)
    module.train(was_training)
    rows = zip(logprobs, texts, PROMPTS, RESPONSES, strict=True)
    return [
        float(np.mean([row[i, text[i]] for i in range(len(p) - 2, len(p) - 2 + len(r))]))
        for row, text, p, r in rows
    ]


def scores(llm: LLM) -> list[float]:
    answers = llm.score(PROMPTS, RESPONSES, ScoringParams(selector="response-text"))
    return [answer.outputs[0].score.value for answer in answers]


def test_roberta_scores_as_a_naive_loop_and_sees_a_trainers_weights_at_once() -> None:
    module = roberta()
    llm = LLM.from_model(module, tokenizer(**MASKED))
    assert llm.predictor.info.max_length == 40  # positions are counted from 2 on
    np.testing.assert_allclose(scores(llm), naive_scores(module), atol=1e-5)
    before = scores(llm)
    with torch.no_grad():
        module.lm_head.dense.weight.neg_()
        module.roberta.embeddings.word_embeddings.weight.mul_(0.5)
    np.testing.assert_allclose(scores(llm), naive_scores(module), atol=1e-5)
    assert scores(llm) != before
    assert module.training


def test_roberta_writes_its_surest_token_first() -> None:
    module = roberta()
    llm = LLM.from_model(module, tokenizer(**MASKED))
    params = SamplingParams(max_tokens=5, block_length=5, tokens_per_step=1)
    [answer] = llm.generate(["<s>abc"], params)
    ids = torch.tensor([[0, 4, 5, 6, *[NAMES.index("<mask>")] * 5]])
    module.eval()
    with torch.no_grad():
        for _ in range(5):
            probabilities = module(ids).logits[0].double().softmax(-1)
            probabilities[:, NAMES.index("<mask>")] = 0
            surest = probabilities.max(-1).values.masked_fill(ids[0] != len(NAMES) - 1, -1)
            place = int(surest.argmax())
            ids[0, place] = probabilities[place].argmax()
    assert list(answer.outputs[0].token_ids) == ids[0, 4:].tolist()


def test_roberta_is_served() -> None:
    module = roberta()
    llm = AsyncLLM.from_model(module, tokenizer(**MASKED), max_waiting=8)
    with TestClient(create_app(llm)) as client:
        request = {"prompt": PROMPTS[0], "response": RESPONSES[0], "selector": "response-text"}
        scored = client.post("/v1/score", json=request)
        assert scored.status_code == 200, scored.text
        score = scored.json()["data"][0]["score"]["value"]
        assert score == pytest.approx(naive_scores(module)[0], abs=1e-5)
        written = client.post("/v1/completions", json={"prompt": "abc", "max_tokens": 4})
        assert written.json()["usage"]["completion_tokens"] == 4, written.text


def test_a_module_in_memory_keeps_the_promises_of_a_predictor() -> None:
    check_mask_predictor(LLM.from_model(roberta(), tokenizer(**MASKED)).predictor)


def test_the_module_of_a_checkpoint_answers_as_the_loaded_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-0.6B-diffusion-mdlm-v0.1"
    folder.mkdir()
    llm = LLM.from_model(*reference_a2d.module_and_tokenizer(folder))
    loaded = LLM(folder, dtype="float32")
    info = llm.predictor.info
    assert (info.max_length, info.special) == (
        loaded.predictor.info.max_length, loaded.predictor.info.special,
    )  # fmt: skip
    params = SamplingParams(max_tokens=8, block_length=4, selector="response")
    assert_alike(*(each.generate(["abab", "b"], params) for each in (llm, loaded)), 1e-5)


def test_transformers_generates_by_the_lines_of_the_docs(tmp_path: Path) -> None:
    module, tokenizer = reference_a2d.module_and_tokenizer(tmp_path / "model")
    [block] = [text for text in python_of(ROOT / "docs/python.md") if "custom_generate" in text]
    names = {"module": module, "tokenizer": tokenizer, "LLM": LLM, "SamplingParams": SamplingParams}
    exec(block, names)
    llm = LLM.from_model(module, tokenizer)
    pad, texts = tokenizer.pad_token_id, [[26, 26], [1]]
    written = [llm.generate([text], SamplingParams(max_tokens=8)) for text in texts]
    tokens = [list(answer.outputs[0].token_ids) for [answer] in written]
    expected = [[26, 26, *tokens[0]], [pad, 1, *tokens[1]]]
    width = max(map(len, expected))
    rows = [[*row, *[pad] * (width - len(row))] for row in expected]
    assert names["ids"].tolist() == rows


NETWORK = """
from torch import nn


class Network(nn.Module):
    def __init__(self, fields):
        super().__init__()
        self.embedding = nn.Embedding(fields["vocab_size"], 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, fields["vocab_size"])

    def forward(self, ids, attention_mask=None):
        padding = None if attention_mask is None else attention_mask == 0
        return self.head(self.layer(self.embedding(ids), src_key_padding_mask=padding))
"""
"""No class of transformers."""


def test_the_adapter_of_the_docs_reads_a_class_that_transformers_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_network.py").write_text(NETWORK)
    page = (ROOT / "docs/plugins.md").read_text()
    (tmp_path / "dise_own.py").write_text(titled(page)["dise_own.py"])
    monkeypatch.syspath_prepend(tmp_path)
    embedded, folder = ROOT / "adapters/dise_adapters/embedded/countdown", tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded / name, folder)
    fields = json.loads((embedded / "config.json").read_text())
    fields |= {"architectures": ["OurOwn"], "longest": 64}
    (folder / "config.json").write_text(json.dumps(fields))
    torch.manual_seed(0)
    network = import_module("our_network").Network(fields).eval()
    save_file(network.state_dict(), folder / "model.safetensors")

    llm = LLM(folder, plugins=[import_module("dise_own")])
    check_mask_predictor(llm.predictor)
    ids, prompts = list(range(1, 13)), [[1], [1, 2, 3, 4]]
    responses = [ids[len(prompt) :] for prompt in prompts]
    params = ScoringParams(selector="response")
    answers = llm.score(prompts, [responses[0], responses[1][:3]], params)
    for prompt, answer in zip(prompts, answers, strict=True):
        text = [*prompt, *answer.outputs[0].token_ids]
        with torch.no_grad():
            logprobs = network(torch.tensor([text]))[0].double().log_softmax(-1)
        expected = np.mean([float(logprobs[i, text[i]]) for i in range(len(prompt), len(text))])
        assert answer.outputs[0].score.value == pytest.approx(expected, abs=1e-5)
    assert llm.generate(prompts, SamplingParams(max_tokens=4))[0].outputs[0].score.value < 0


class Scaled(RobertaForMaskedLM):  # type: ignore[misc]
    """Does more to its logits than its head does."""

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> object:
        result = super().forward(ids, attention_mask)
        result.logits = result.logits * 0.5
        return result


def test_a_model_that_changes_its_heads_logits_runs_whole() -> None:
    module = Scaled(roberta().config).train()
    np.testing.assert_allclose(
        scores(LLM.from_model(module, tokenizer(**MASKED))), naive_scores(module), atol=1e-5
    )


class Dropping(nn.Module):
    """A head with dropout that changes its input, and counts its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.num_rows = 0
        self.dropout, self.linear = nn.Dropout(0.5), nn.Linear(16, len(NAMES))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        self.num_rows += states.shape[:-1].numel()
        result: torch.Tensor = self.linear(self.dropout(states.add_(1)))
        return result


def test_a_head_runs_without_dropout_and_only_where_something_is_read() -> None:
    module = roberta()
    module.lm_head = Dropping().train()
    llm = LLM.from_model(module, tokenizer(**MASKED))
    module.lm_head.num_rows = 0
    scores(llm)
    assert module.lm_head.num_rows == len("".join(RESPONSES))
    np.testing.assert_allclose(scores(llm), naive_scores(module), atol=1e-5)
    assert module.lm_head.dropout.training
    module(torch.tensor([[0, 4, 5]])).logits.sum().backward()


class Plain(nn.Module):
    """A module that tells nothing of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(NAMES), len(NAMES))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.words(ids)
        return result


def test_what_a_module_does_not_tell_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"Plain does not say how long texts may be"):
        LLM.from_model(Plain(), tokenizer(**MASKED))
    with pytest.raises(InputError, match=r"name no mask token: give mask_id="):
        LLM.from_model(roberta(), tokenizer())
    with pytest.raises(InputError, match=r"A tokenizer is a fast one .*, not str"):
        LLM.from_model(roberta(), "roberta-base")
    with pytest.raises(InputError, match=r"is a torch\.nn\.Module, not str"):
        LLM.from_model("roberta-base", tokenizer())
    with pytest.raises(InputError, match=r"must see later tokens .*attention="):
        LLM.from_model(roberta(), tokenizer(), mask_id=31, attention=Causal(), answers_for="next")
    with pytest.raises(InputError, match=r"from_model takes no dtype, as it loads nothing"):
        LLM.from_model(roberta(), tokenizer(), dtype="float32")  # type: ignore[call-arg]
    llm = LLM.from_model(Plain(), tokenizer(), mask_id=31, max_length=9)
    assert llm.predictor.info.max_length == 9
