"""Forward passes that are in memory answer as naive loops over them do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from dise_adapters import reader_of
from dise_core import (
    Candidates,
    Causal,
    Distribution,
    Guidance,
    InputError,
    ModelError,
    ModelInfo,
    Read,
    Readout,
    SpecialTokens,
    TopLogProbs,
)
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.testing.toy_model import naive_readout

VOCAB, MASK = 24, 23


def info(attention: Attention = BIDIRECTIONAL, vocab_size: int = VOCAB) -> ModelInfo:
    special = SpecialTokens(MASK, frozenset({22}), 22)
    return ModelInfo("mine", vocab_size, 40, special, attention)


class Attending(nn.Module):
    """One layer of attention and a head, with dropout; records its batches' shapes."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.words = nn.Parameter(torch.randn(VOCAB, 16, generator=generator))
        self.head = nn.Linear(16, VOCAB, bias=False)
        nn.init.normal_(self.head.weight, generator=generator)
        self.dropout, self.shapes = nn.Dropout(0.5), list[Any]()

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        self.shapes.append(tuple(ids.shape))
        places = torch.arange(ids.shape[1])[:, None] * torch.linspace(0, 1, 16)
        states = self.dropout(self.words[ids]) * torch.cos(places)
        scores = states @ states.transpose(1, 2) / 16
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None] == 0, -torch.inf)
        result: Tensor = self.head(states + scores.softmax(-1) @ states)
        return result


class Heedless(Attending):
    """Takes the padding's mask, and does not heed it."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(ids)


SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "initializer_range": 0.5,
    "pad_token_id": 1,
}


def bert() -> BertForMaskedLM:
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(**SIZES))


def roberta() -> RobertaForMaskedLM:
    torch.manual_seed(0)
    return RobertaForMaskedLM(RobertaConfig(**SIZES))


def modernbert(layer: str = "sliding_attention", **changes: object) -> ModernBertForMaskedLM:
    """Return one whose layer sees three tokens on each side, or all."""
    torch.manual_seed(0)
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
    fields = {**SIZES, **special, "local_attention": 6, "layer_types": [layer], **changes}
    return ModernBertForMaskedLM(ModernBertConfig(**fields))


def reads() -> list[Read]:
    """Return Reads of texts of five lengths, which hold no padding token of RoBERTa's."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(2, VOCAB, length) for length in (9, 8, 9, 3, 20)]
    kinds: list[Readout] = [Distribution(), TopLogProbs(3), Candidates()]
    kinds += [Distribution(), TopLogProbs(2)]
    ends = [np.array([0, 2, len(text) - 1]) for text in texts]
    return [Read(*parts) for parts in zip(texts, ends, kinds, strict=True)]


def assert_naive(readings: Any, module: nn.Module, shift: int) -> None:
    """Compare with each text alone; row `shift` before a position answers for it."""
    module.eval()
    for reading, read in zip(readings, reads(), strict=True):
        with torch.no_grad():
            result = module(torch.from_numpy(read.token_ids)[None])
        logits = result if isinstance(result, Tensor) else result.logits
        rows = np.maximum(read.positions - shift, 0)
        expected = naive_readout(logits[0].double().numpy()[rows], read)
        assert reading.token_ids.tolist() == expected.token_ids.tolist()
        for part in ("logprobs", "confidences"):
            values = getattr(reading, part), getattr(expected, part)
            np.testing.assert_allclose(*values, atol=2e-5)


@pytest.mark.parametrize("make", [Attending, Heedless, roberta])
@pytest.mark.parametrize("answers_for", ["own", "next"])
def test_texts_in_batches_answer_as_each_alone(make: Any, answers_for: Any) -> None:
    module = make().train()
    readings = reader_of(module, info(), answers_for=answers_for).read(reads())
    assert all(part.training for part in module.modules())
    assert_naive(readings, module, int(answers_for == "next"))


def test_texts_share_a_batch_unless_padding_is_not_heeded() -> None:
    for module, shapes in (Attending(), {(4, 9)}), (Heedless(), {(2, 9), (1, 8)}):
        reader = reader_of(module, info())
        module.shapes.clear()
        reader.read(reads())
        assert shapes <= set(module.shapes)


def test_a_head_apart_answers_the_same_and_new_weights_are_seen_at_once() -> None:
    whole = roberta()
    reader = reader_of(whole.roberta, info(), head=whole.lm_head)
    assert_naive(reader.read(reads()), whole, 0)
    with torch.no_grad():
        whole.lm_head.decoder.weight.mul_(-1)
    assert_naive(reader.read(reads()), whole, 0)


@pytest.mark.parametrize("make", [bert, roberta, modernbert, lambda: modernbert("full_attention")])
def test_a_shadow_in_one_layer_is_read_as_a_text_with_a_mask_there(make: Any) -> None:
    """In one layer no token that a mask sees has seen the token behind it."""
    model = make().eval()
    padded = Read(np.array([2, 1, 5, 1, 7]), np.array([0, 2, 4]), Distribution())  # RoBERTa's is 1
    wanted = [replace(read, shadow=True, readout=Distribution()) for read in [*reads(), padded]]
    for reading, read in zip(reader_of(model, info()).read(wanted), wanted, strict=True):
        for place, logprobs in zip(read.positions, reading.logprobs, strict=True):
            ids = torch.from_numpy(read.token_ids)[None].clone()
            ids[0, place] = MASK
            with torch.no_grad():
                row = model(ids).logits[0, place].double().log_softmax(-1)
            np.testing.assert_allclose(logprobs, row, atol=2e-5)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: modernbert(local_attention=4096), id="a long window"),
        pytest.param(Attending, id="no module of transformers"),
    ],
)
def test_a_model_that_cannot_read_shadows_says_what_they_take(model: Any) -> None:
    [read, *_] = reads()
    with pytest.raises(InputError, match="they need a mask token and attention"):
        reader_of(model(), info()).read([replace(read, shadow=True)])


class Words(nn.Module):
    """An embedding and a head, without attention."""

    def __init__(self, words: nn.Embedding, head: nn.Linear) -> None:
        super().__init__()
        self.words, self.head = words, head

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.head(self.words(ids))
        return result


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_head_is_read_with_its_weights_and_hooks_of_the_moment(has_bias: bool) -> None:
    torch.manual_seed(0)
    module = Words(nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB, bias=has_bias))
    reader = reader_of(module.words, info(), head=module.head)
    assert_naive(reader.read(reads()), module, 0)
    with torch.no_grad():
        module.head.weight.mul_(-1)
    assert_naive(reader.read(reads()), module, 0)
    module.head.register_forward_hook(lambda _layer, _inputs, logits: logits * 2)
    assert_naive(reader.read(reads()), module, 0)


def test_what_a_forward_pass_does_not_do_is_refused() -> None:
    with pytest.raises(InputError, match="does not attend as"):
        reader_of(Attending(), info(Causal()), answers_for="next")
    with pytest.raises(InputError, match='give answers_for="next"'):
        reader_of(Attending(), info(Causal()))
    with pytest.raises(InputError, match=r"has 24 logits, and info\.vocab_size is 25"):
        reader_of(Attending(), info(vocab_size=25))
    with pytest.raises(ModelError, match=r"must return \[B, N, V\] for ids of \[1, 3\]"):
        reader_of(lambda ids: torch.zeros(3, VOCAB), info())


def test_what_has_no_probability_has_none_under_guidance() -> None:
    module, bare, text = Attending().eval(), np.full(4, MASK), np.array([1, 2, 3, MASK])

    def certain(ids: Tensor) -> Tensor:
        """As MDLM: never the mask, and where a token stands no other."""
        others = (torch.arange(VOCAB) != ids[..., None]) & (ids != MASK)[..., None]
        rows: Tensor = module(ids).masked_fill(others, -torch.inf)
        rows[..., MASK] = -torch.inf
        return rows

    read = Read(text, np.arange(4), Distribution(), guidance=Guidance(bare, 1.5))
    [reading] = reader_of(certain, info()).read([read])
    with torch.no_grad():
        own, other = (certain(torch.from_numpy(ids)[None])[0].double() for ids in (text, bare))
    is_open = torch.isfinite(own) & torch.isfinite(other)
    rows = torch.where(is_open, other + 2.5 * (own - other), -torch.inf).log_softmax(-1)
    assert (reading.logprobs == -np.inf).tolist() == (~is_open).tolist()
    np.testing.assert_allclose(reading.logprobs[is_open], rows[is_open], atol=2e-5)


def test_a_time_conditioned_model_is_refused_by_a_reader_that_tells_no_level() -> None:
    with pytest.raises(InputError, match="reader_of tells the forward pass no noise level"):
        reader_of(Attending(), replace(info(), is_time_conditioned=True))
