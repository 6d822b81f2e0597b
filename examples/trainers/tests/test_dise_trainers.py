"""Values and gradients against loops that run a tiny model of transformers text by text, and
against the trainers' own formulas.
"""

from __future__ import annotations

import itertools
import json
import math
import runpy
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dise_trainers import Estimate, draw, terms_of
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

import dise_adapters
from dise_core import (
    LLM,
    BlockCausal,
    InputError,
    ModelInfo,
    Scorer,
    ScoringParams,
    SpecialTokens,
    Terms,
    TokenLogProbs,
    installed_catalog,
)

MASK, END, VOCAB = 26, 25, 27
INFO = ModelInfo("tiny", VOCAB, 64, SpecialTokens(MASK, frozenset({END})))
FAMILIES = {"A2DQwen2LMHeadModel": ("a2d-qwen2", "own"), "DreamModel": ("Dream", "next")}
PROMPTS, RESPONSES = [[3, 4, 5], [6], [7, 8]], [[9, 10, 11, 12], [1, 2, 3, 4, 5, 6], [2, 2, 9, 2]]


def tiny(dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
    torch.manual_seed(0)
    config = {"vocab_size": VOCAB, "is_causal": False, "use_cache": False, **sizes, **heads}
    return Qwen2ForCausalLM(Qwen2Config(**config | changes)).eval().to(dtype)


def scorer_of(name: str, **settings: Any) -> Scorer:
    return installed_catalog().scorer(name, settings)


def naive(module: Any, batch: Sequence[Terms], shift: int = 0) -> Tensor:
    """One forward pass a Read, all of whose activations are kept."""
    values = []
    for terms in batch:
        value = torch.zeros((), dtype=torch.float64)
        for read, weights in zip(terms.reads, terms.weights, strict=True):
            rows = module(input_ids=torch.tensor([read.token_ids.tolist()])).logits[0]
            assert isinstance(read.readout, TokenLogProbs)
            targets = read.readout.targets
            for position, target, weight in zip(read.positions, targets, weights, strict=True):
                value = value + weight * rows[max(position - shift, 0)].log_softmax(-1)[target]
        values.append(value)
    return torch.stack(values)


def gradients(module: Any, value: Tensor) -> Tensor:
    found = torch.autograd.grad(value, list(module.parameters()))
    return torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("num_rows", "answers_for", "shift"), [(1, "own", 0), (3, "next", 1)])
def test_values_and_gradients_are_those_of_a_naive_loop(
    dtype: torch.dtype, within: float, num_rows: int, answers_for: Any, shift: int
) -> None:
    module, pull = tiny(dtype), torch.tensor([0.5, -1.0, 2.0])
    batch = draw(scorer_of("mc", num_samples=4), INFO, PROMPTS, RESPONSES, seed=1)
    values = Estimate(num_rows, answers_for)(module, batch)
    expected = naive(module, batch, shift)
    torch.testing.assert_close(values, expected, rtol=within, atol=within)
    got, wanted = (gradients(module, (pull * each).sum()) for each in (values, expected))
    assert (got - wanted).abs().max() <= within * wanted.abs().max()


def subsets(num_tokens: int) -> Iterator[list[bool]]:
    for bits in itertools.product([False, True], repeat=num_tokens):
        if any(bits):
            yield list(bits)


def over_orders(module: Any, prompt: list[int], response: list[int]) -> Tensor:
    """The mean over all orders of the log-probability of revealing a response in that order."""
    total, start = torch.zeros((), dtype=torch.float64), len(prompt)
    orders = list(itertools.permutations(range(len(response))))
    for order in orders:
        canvas = prompt + [MASK] * len(response)
        for place in order:
            row = module(input_ids=torch.tensor([canvas])).logits[0, start + place]
            total = total + row.log_softmax(-1)[response[place]]
            canvas[start + place] = response[place]
    return total / len(orders)


def test_the_estimate_and_its_gradient_are_unbiased_over_all_masks() -> None:
    """Each mask of three tokens that `draw` ever draws, by its probability."""
    module, scorer = tiny(), scorer_of("mc", num_samples=1)
    drawn: dict[tuple[int, ...], Terms] = {}
    for seed in range(100):  # each of 7 masks has at least 1/9: missed with 7 * (8/9)^100 < 6e-5
        [terms] = draw(scorer, INFO, [[3, 4]], [[9, 10, 11]], seed=seed)
        drawn[tuple(terms.reads[0].positions - 2)] = terms
    assert len(drawn) == 7
    chances = [1 / 3 / math.comb(3, len(masked)) for masked in drawn]
    values = Estimate(num_rows=8)(module, list(drawn.values()))
    value, expected = (
        torch.tensor(chances).double() @ values,
        over_orders(module, [3, 4], [9, 10, 11]),
    )
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    got, wanted = gradients(module, value), gradients(module, expected)
    assert (got - wanted).abs().max() <= 1e-6 * wanted.abs().max()


@pytest.fixture(params=FAMILIES)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any, Any]:
    """A checkpoint that DiSE loads, the module that was saved, and its answers_for."""
    module, (model_type, answers_for) = tiny(torch.float32), FAMILIES[request.param]
    module.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    names = {"architectures": [request.param], "model_type": model_type, "mask_token_id": MASK}
    names |= {"eos_token_id": END, "pad_token_id": END}
    (tmp_path / "config.json").write_text(json.dumps(config | names))
    for path in (Path(dise_adapters.__file__).parent / "embedded/countdown").glob("tok*.json"):
        shutil.copy(path, tmp_path)
    return tmp_path, module, answers_for


def test_the_value_is_what_dise_score_says(saved: tuple[Path, Any, Any]) -> None:
    folder, module, answers_for = saved
    llm = LLM(str(folder), block_size=0)
    for name, settings in (
        ("dise", {}), ("interleaved", {"k": 2}), ("mc", {"num_samples": 4}),
        ("mc", {"num_samples": 3, "spread": "gauss", "shared_masks": True}),
        ("mc", {"num_samples": 4, "estimator": "llada"}),
    ):  # fmt: skip
        scorer = scorer_of(name, **settings)
        batch = draw(scorer, llm.predictor.info, PROMPTS, RESPONSES)
        with torch.no_grad():
            values = Estimate(answers_for=answers_for)(module, batch)
        params = ScoringParams(scorer=name, scorer_settings=settings)
        answers = llm.score(PROMPTS, RESPONSES, params)
        told = [answer.outputs[0].score.value for answer in answers]
        assert values.tolist() == pytest.approx(told, abs=1e-5), name


def test_the_readmes_example_runs(saved: tuple[Path, Any, Any]) -> None:
    folder, module, _ = saved
    page = (Path(__file__).parents[1] / "README.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    code = code.replace('"path/of/the/checkpoint"', f"{str(folder)!r}, block_size=0")
    names = {"module": module, "old_module": module, "reference_module": module, "step": 3}
    names |= {"prompt_ids": PROMPTS, "response_ids": RESPONSES, "advantages": torch.ones(3)}
    exec(code, names)
    assert names["loss"].item() == -1.0, "old and new are one module"
    assert all(parameter.grad is not None for parameter in module.parameters())


IDS = torch.tensor([3, 4, 5, 9, 10, 11, 12, 13, 1])
IS_RESPONSE = torch.arange(9) >= 3
NUM = 6


def hidden(is_masked: Tensor) -> Tensor:
    return torch.where(is_masked, MASK, IDS)


def masks_of(*counts: int) -> Tensor:
    """Response masks of so many tokens, [K, N]."""
    masks = torch.zeros(len(counts), 9, dtype=torch.bool)
    for mask, count in zip(masks, counts, strict=True):
        mask[3 + torch.randperm(NUM)[:count]] = True
    return masks


Trainer = Callable[[Callable[[Tensor], Tensor]], tuple[Tensor, Tensor, Tensor]]
"""From the log-probabilities [N] of the text on a canvas: canvases, weights and the value."""


def d1(logprobs: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    is_masked = IS_RESPONSE | ((torch.rand(9) < 0.5) & ~IS_RESPONSE)
    canvas = hidden(is_masked)
    return canvas[None], IS_RESPONSE[None].double(), logprobs(canvas)[IS_RESPONSE].sum()


def coupled_grpo(logprobs: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    [mask] = masks_of(2)
    t, other = 1 / 3, IS_RESPONSE & ~mask
    canvases = torch.stack([hidden(IS_RESPONSE), hidden(mask), hidden(other)])
    p0, p1, p2 = (logprobs(canvas) for canvas in canvases)
    value = sum((p0[i] + (p1[i] / t if mask[i] else p2[i] / (1 - t))) / 2 for i in range(3, 9))
    weights = torch.stack([IS_RESPONSE / 2, mask / t / 2, other / (1 - t) / 2])
    return canvases, weights, value  # type: ignore[return-value]


def espo(logprobs: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    [mask] = masks_of(2)
    other = IS_RESPONSE & ~mask
    first = (NUM + 1) / 2 * logprobs(hidden(mask))[mask].sum()
    second = (NUM + 1) / (NUM - 2) * logprobs(hidden(other))[other].sum()
    weights = torch.stack([mask * (NUM + 1) / 2, other * (NUM + 1) / (NUM - 2)]) / 2
    return torch.stack([hidden(mask), hidden(other)]), weights, (first + second) / 2


def gdpo(logprobs: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    nodes, shares = np.polynomial.legendre.leggauss(3)
    times, shares = (nodes + 1) / 2, shares / 2
    masks = masks_of(*(int(t * NUM) for t in times for _ in range(2)))
    value, weights = torch.zeros((), dtype=torch.float64), []
    for mask, t, share in zip(masks, times.repeat(2), shares.repeat(2), strict=True):
        value = value + share / t * logprobs(hidden(mask))[mask].sum() / 2
        weights.append(mask * (share / (t * 2)))
    return torch.stack([hidden(mask) for mask in masks]), torch.stack(weights), value


@pytest.mark.parametrize("trainer", [d1, coupled_grpo, espo, gdpo])
def test_a_trainers_masks_give_the_trainers_value(trainer: Trainer) -> None:
    module = tiny()

    def logprobs(canvas: Tensor) -> Tensor:
        rows: Tensor = module(input_ids=canvas[None]).logits[0].log_softmax(-1)
        return rows[range(9), IDS]

    torch.manual_seed(5)
    canvases, weights, expected = trainer(logprobs)
    terms = terms_of(IDS, canvases, weights)
    value = Estimate(num_rows=2)(module, [terms])
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    got, wanted = gradients(module, value.sum()), gradients(module, expected)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
    tokens = Estimate().per_token(module, [terms])[0]
    assert tokens[:3].tolist() == [0, 0, 0], "no prompt token counts"
    assert tokens.sum().item() == pytest.approx(expected.item(), abs=1e-6)


def test_masks_do_not_depend_on_the_micro_batch() -> None:
    scorer, module = scorer_of("mc", num_samples=3), tiny()
    whole = draw(scorer, INFO, PROMPTS, RESPONSES, seed=4)
    each = [
        draw(scorer, INFO, [p], [r], seed=4)[0] for p, r in zip(PROMPTS, RESPONSES, strict=True)
    ]
    canvases = [[read.token_ids.tolist() for read in terms.reads] for terms in whole]
    assert canvases == [[read.token_ids.tolist() for read in terms.reads] for terms in each]
    [other] = draw(scorer, INFO, PROMPTS[:1], RESPONSES[:1], seed=5)
    assert canvases[0] != [read.token_ids.tolist() for read in other.reads]
    alone = torch.cat([Estimate(2)(module, [terms]) for terms in each])
    torch.testing.assert_close(Estimate(2)(module, whole), alone, rtol=1e-10, atol=1e-10)


def test_the_ratio_to_an_equal_policy_is_exactly_1() -> None:
    module, batch = tiny(torch.float32), draw(scorer_of("mc"), INFO, PROMPTS, RESPONSES)
    with torch.no_grad():
        old = Estimate(4)(module, batch)
    assert (Estimate(4)(module, batch) - old).exp().tolist() == [1, 1, 1]


@pytest.mark.parametrize("tokens", [1, 9])
def test_backward_adds_what_autograd_does(tokens: int) -> None:
    module = tiny()
    batch = draw(scorer_of("mc", num_samples=3), INFO, PROMPTS, RESPONSES)
    width = max(len(terms.reads[0].token_ids) for terms in batch)
    pull = torch.randn(3, width if tokens > 1 else 1, dtype=torch.float64)
    wanted = gradients(module, (pull * Estimate().per_token(module, batch)).sum())
    for _ in range(2):
        Estimate(2).backward(module, batch, pull[:, 0] if tokens == 1 else pull)
    got = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    torch.testing.assert_close(got, 2 * wanted, rtol=1e-10, atol=1e-10)


def autograd(module: Any, batch: Sequence[Terms]) -> None:
    torch.autograd.backward(Estimate()(module, batch).sum())


def backward(module: Any, batch: Sequence[Terms]) -> None:
    Estimate().backward(module, batch, torch.ones(1))


def peak(run: Callable[[Any, Sequence[Terms]], None], num_masks: int) -> int:
    """Bytes that the allocator held at most during a forward and a backward pass, beyond those
    before it.
    """
    module, count = tiny(torch.float32, num_hidden_layers=4), (num_masks, 400)
    ids = np.random.default_rng(0).integers(0, END, 400)
    batch = [terms_of(ids, np.full(count, MASK), np.ones(count))]
    run(module, batch)  # gradients stand, as in training
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiled:
        run(module, batch)
    events = profiled.profiler.kineto_results.events()
    sizes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    return int(np.cumsum([size for _, size in sorted(sizes)]).max())


@pytest.mark.parametrize(("run", "most"), [(autograd, 1.1), (backward, 1.02)])
def test_eight_masks_take_no_more_memory_than_one(run: Any, most: float) -> None:
    assert peak(run, 8) <= most * peak(run, 1)


class Reading(Scorer):
    """Reads the model before it knows its terms."""

    def terms(self, sequence: Any, selector: Any) -> Any:  # noqa: ARG002
        yield [object()]
        return Terms()


BLOCKS = ModelInfo("sdar", VOCAB, 64, INFO.special, attention=BlockCausal(4))


@pytest.mark.parametrize(
    ("scorer", "info", "response", "seed", "text"),
    [
        (scorer_of("mc"), BLOCKS, [1], None, "'sdar' has BlockCausal.* not each block after"),
        (scorer_of("written"), INFO, [1], None, "Written needs how a text was written"),
        (scorer_of("dise"), INFO, [1], 3, "seed=3, but DiSE draws nothing at random"),
        (scorer_of("mc"), INFO, [], None, r"responses\[0\] of 0 tokens has none"),
        (scorer_of("ar-perplexity"), INFO, [1], None, "has no terms"),
        (Reading(), INFO, [1], None, "reads 1 texts before it knows its terms"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    scorer: Scorer, info: ModelInfo, response: list[int], seed: int | None, text: str
) -> None:
    with pytest.raises(InputError, match=text):
        draw(scorer, info, [[2]], [response], seed=seed)


def test_what_no_plain_forward_computes_is_refused() -> None:
    for scorer in (scorer_of("shadow"), scorer_of("mc", cfg_scale=1.0)):
        with pytest.raises(InputError, match="is of shadows or guided"):
            Estimate()(tiny(), draw(scorer, INFO, [[2]], [[3, 4]]))
    with pytest.raises(InputError, match=r"A text of 2 tokens with canvases \(1, 3\)"):
        terms_of(np.arange(2), np.zeros((1, 3), np.int64), np.zeros((1, 3)))


def test_a_module_of_any_kind_is_called_by_its_own_forward() -> None:
    module = nn.Embedding(VOCAB, VOCAB)
    batch = draw(scorer_of("dise"), INFO, [[2]], [[3, 4]])
    [value] = Estimate(forward=lambda module, ids: module(ids))(module, batch)
    rows = module.weight.log_softmax(-1)
    assert value.item() == pytest.approx((rows[3, 3] + rows[4, 4]).item() / 2, abs=1e-6)


VARIANCE = Path(__file__).parents[1] / "variance.py"


def test_the_chains_conditionals_are_those_of_all_its_texts() -> None:
    names = runpy.run_path(str(VARIANCE))
    chain, _ = names["chains"](torch.Generator().manual_seed(1))
    text, hidden_at = torch.tensor([1, 5, 0, 7, 2]), [1, 2, 4]
    canvas = text.clone()
    canvas[hidden_at] = names["MASK"]
    every = text.repeat(8**3, 1)
    every[:, hidden_at] = torch.cartesian_prod(*[torch.arange(8)] * 3)
    chances = chain.exact(every).exp()
    for at in hidden_at:
        expected = torch.zeros(8, dtype=torch.float64).index_add(0, every[:, at], chances)
        got = chain(canvas[None])[0, at].exp()
        torch.testing.assert_close(got, expected / expected.sum(), rtol=1e-9, atol=1e-12)


def test_the_table_of_variances_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["variance.py", "--draws", "40", "--texts", "2"])
    runpy.run_path(str(VARIANCE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()[3:]
    table = {line[:24].strip(): [float(word) for word in line[24:].split()] for line in lines}
    assert len(table) == 10
    assert table["d1, 1"][1] == 0, "it draws nothing"
    for name, (_, _, _, shared, unshared) in table.items():
        assert shared < unshared / 5 or name == "d1, 1"
