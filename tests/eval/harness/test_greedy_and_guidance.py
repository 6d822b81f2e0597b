"""The harness's greedy flag and its guided likelihoods, against LLaDA's evaluation written out in
float64.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("lm_eval")
from lm_eval.api.instance import Instance

from dise_core import InputError, Read
from dise_eval.harness.model import DiseLM
from tests import tiny_causal
from tests.recorded import Recorded
from tests.reference_llada import (
    ReferenceLLaDA,
    default_config,
    naive_decode,
    random_weights,
    write_checkpoint,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz "
MASK = 49
CONTEXTS = ["to be or", "ab", "x y z", "quick", "brown fox", "lazy dog", "hello", "wor ld"]
SCORING = {"scorer": "mc", "selector": "response", "samples": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = default_config()
    return write_checkpoint(
        tmp_path_factory.mktemp("llada"), config, random_weights(config, gain=1.3, seed=1)
    )


def guided_logits(
    model: ReferenceLLaDA, ids: list[int], prompt_length: int, scale: float
) -> Tensor:
    """Return LLaDA's guided logits [N, rows] of one text."""
    logits = model.logits(ids)
    if scale > 0:
        unconditional = model.logits([MASK] * prompt_length + ids[prompt_length:])
        logits = unconditional + (scale + 1) * (logits - unconditional)
    return logits


def naive_fill(model: ReferenceLLaDA, prompt: list[int], length: int, scale: float) -> list[int]:
    """Return what LLaDA's suffix_greedy_prediction compares a target with: one token a pass, the
    surest one.
    """
    return naive_decode(model, prompt, length, length, 1, cfg_scale=scale)[len(prompt) :]


def request(context: str, continuation: str) -> Instance:
    return Instance(request_type="loglikelihood", doc={}, arguments=(context, continuation), idx=0)  # type: ignore[arg-type]


def likelihoods(model: DiseLM, *pairs: tuple[str, str]) -> list[tuple[float, bool]]:
    return model.loglikelihood([request(*pair) for pair in pairs], disable_tqdm=True)


def encode(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def cases(model: ReferenceLLaDA, scale: float) -> list[tuple[str, str, bool]]:
    """Return (context, continuation, is greedy): what the naive loop writes, and the same with one
    letter changed.
    """
    found = []
    for context in CONTEXTS + [first + second for first in CONTEXTS for second in CONTEXTS]:
        for length in (1, 2, 3):
            written = naive_fill(model, encode(context), length, scale)
            if max(written) >= len(LETTERS) or written[0] == LETTERS.index(" "):
                continue
            found.append((context, "".join(LETTERS[token] for token in written), True))
            for place in range(length):
                other = [*written[:place], (written[place] + 1) % 26, *written[place + 1 :]]
                found.append((context, "".join(LETTERS[token] for token in other), False))
    return found


@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_the_greedy_flag_is_that_of_lladas_evaluation(folder: Path, scale: float) -> None:
    wanted = cases(ReferenceLLaDA(folder, torch.float64), scale)
    assert sum(len(text) >= 2 for _, text, is_greedy in wanted if is_greedy) >= 5
    model = DiseLM(str(folder), cfg_scale=scale, **SCORING)  # type: ignore[arg-type]
    answers = likelihoods(model, *((context, text) for context, text, _ in wanted))
    assert [is_greedy for _, is_greedy in answers] == [is_greedy for _, _, is_greedy in wanted]


def test_the_first_wrong_token_ends_the_check_and_the_flag_can_be_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DiSE reads the text once; a right continuation of n tokens adds n passes, one that is wrong
    at once adds one.
    """
    reference = ReferenceLLaDA(folder, torch.float64)
    context, right = next(
        (it, text) for it, text, is_greedy in cases(reference, 0) if is_greedy and len(text) == 3
    )
    wrong = LETTERS[(naive_fill(reference, encode(context), 1, 0)[0] + 1) % 26]
    for settings, text, num_passes, flag in (
        ({}, right, 4, True),
        ({}, wrong, 2, False),
        ({"is_check_greedy": False}, right, 1, False),
    ):
        model = DiseLM(str(folder), scorer="dise", **settings)  # type: ignore[arg-type]
        seen = watch(model)
        for _ in range(2):
            assert likelihoods(model, (context, text))[0][1] is flag
        assert seen.num_texts == 2 * num_passes
    assert caplog.text.count("reported as False") == 1


def watch(model: DiseLM) -> Recorded:
    """Return what records the model's Reads from now on."""
    predictor = model._llm.predictor
    predictor.read = Recorded(predictor.read)  # type: ignore[method-assign, arg-type]
    return predictor.read


@pytest.mark.parametrize("estimator", ["paper", "llada", "dream"])
def test_guided_likelihoods_are_lladas_for_the_same_maskings(folder: Path, estimator: str) -> None:
    """The maskings are those that the scorer draws; log-probabilities, weights and mean are taken
    here, in float64.
    """
    scale, prompt, response = 0.8, encode("to be or"), encode(" not to be")
    model = DiseLM(
        str(folder),
        scorer="mc",
        selector="response",
        mc_num=16,
        cfg=scale,
        is_check_greedy=False,
        scorer_settings={"estimator": estimator},
    )
    seen = watch(model)
    [(value, _)] = likelihoods(model, ("to be or", " not to be"))
    reference = ReferenceLLaDA(folder, torch.float64)
    ended = prompt + response + ([48] if estimator == "dream" else [])
    estimates = []
    for masking in seen.reads:
        masked = masking.positions.tolist()
        ids = [MASK if i in masked else token for i, token in enumerate(ended)]
        assert masking.token_ids.tolist() == ids
        logprobs = torch.log_softmax(guided_logits(reference, ids, len(prompt), scale), dim=-1)
        estimates.append(sum(float(logprobs[i, ended[i]]) for i in masked))
    weights = weights_of(model, seen.reads, ended, len(response))
    assert value == pytest.approx(np.dot(weights, estimates) / 16, abs=1e-5, rel=1e-6)


def weights_of(model: DiseLM, maskings: list[Read], ids: list[int], num_tokens: int) -> list[float]:
    """Return the weight of each sample: tokens / masked tokens, or for Dream 1 / t by its own
    random numbers.
    """
    if model._scoring.scorer_settings["estimator"] != "dream":
        return [num_tokens / len(masking.positions) for masking in maskings]
    from dise_core.noise import Noise

    drawn = list(
        model._scorer.samples(num_tokens, Noise.for_request(0, np.array(ids), 0).generator())
    )  # type: ignore[attr-defined]
    return [sample.weight for sample in drawn if sample.is_masked.any()]


def test_guidance_changes_the_likelihood_and_a_scorer_without_it_is_refused_at_the_first_request(
    folder: Path,
) -> None:
    models = (
        DiseLM(str(folder), is_check_greedy=False, cfg_scale=scale, **SCORING)  # type: ignore[arg-type]
        for scale in (0.0, 0.8)
    )
    plain, guided = (likelihoods(model, ("to be or", " not"))[0][0] for model in models)
    assert abs(plain - guided) > 0.01
    model = DiseLM(str(folder), scorer="dise", cfg_scale=0.8, max_tokens=8, block_length=8)
    message = r"scorer 'dise' cannot be guided, so cfg_scale=0.8 .* \(mc\)"
    with pytest.raises(InputError, match=message):
        likelihoods(model, ("to be or", " not"))
    with pytest.raises(InputError, match=message):
        model.loglikelihood_rolling([request("to be or", " not")], disable_tqdm=True)
    asked = Instance(request_type="generate_until", doc={}, arguments=("ab", {}), idx=0)  # type: ignore[arg-type]
    assert len(model.generate_until([asked], disable_tqdm=True)) == 1


def test_lladas_names_are_ours_and_two_names_of_one_setting_are_refused(folder: Path) -> None:
    theirs = DiseLM(str(folder), scorer="mc", mc_num=4, cfg=0.5)
    assert (theirs._scorer.num_samples, theirs._scorer.cfg_scale) == (4, 0.5)  # type: ignore[attr-defined]
    assert theirs._sampling({}).cfg_scale == 0.5
    for settings, message in (
        ({"cfg": 0.5, "cfg_scale": 0.5}, "cfg and cfg_scale are two names of one setting"),
        ({"mc_num": 4, "samples": 4}, "mc_num and samples are two names of one setting"),
        ({"is_check_greedy": "no"}, "is_check_greedy is True or False, not 'no'"),
    ):
        with pytest.raises(InputError, match=message):
            DiseLM(str(folder), scorer="mc", **settings)  # type: ignore[arg-type]


def test_a_causal_models_flag_is_that_of_its_own_likeliest_tokens_in_the_pass_that_scores(
    tmp_path: Path,
) -> None:
    plain = tiny_causal.llama().eval()
    tiny_causal.checkpoint(tmp_path, plain)
    wanted = []
    for context in CONTEXTS:
        ids = encode(context)
        with torch.inference_mode():
            for _ in range(2):
                ids.append(int(plain(torch.tensor([ids])).logits[0, -1].argmax()))
        written = ids[len(context) :]
        for place, change in ((0, 0), (0, 1), (1, 1)):
            text = [token + change * (i == place) for i, token in enumerate(written)]
            if max(text) < len(LETTERS):
                wanted.append((context, "".join(LETTERS[token] for token in text), change == 0))
    assert {is_greedy for _, _, is_greedy in wanted} == {True, False}
    lm = DiseLM(str(tmp_path), scorer="ar-perplexity")
    seen = watch(lm)
    answers = likelihoods(lm, *((context, text) for context, text, _ in wanted))
    assert [is_greedy for _, is_greedy in answers] == [is_greedy for _, _, is_greedy in wanted]
    assert seen.num_texts == len(wanted)
