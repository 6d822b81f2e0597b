"""SGLang's own loops with a record of what they write, beside SGLang alone and beside ours."""

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dise_core import LLM, ScoringParams
from dise_sglang.recording import BLOCKS, own_logprobs
from tests.published import LLADA2, SDAR_MOE
from tests.reference_backbone import edited
from tests.sglang.canvases import (
    CONFIDENCE,
    LENGTH,
    SETTINGS,
    SIZE,
    STEPS,
    T_MAX,
    T_MIN,
    CanvasRunner,
    Seen,
    network,
)
from tests.sglang.served import Runner, Served

FEW = {"threshold": 0.1, "edit_threshold": 0.05}
ALGORITHMS: dict[str, dict[str, float]] = {
    "LowConfidence": {"threshold": 0.3}, "JointThreshold": FEW, "JointThresholdInDel": FEW,
}  # fmt: skip
NUM = int(os.environ.get("DISE_SGLANG_PROMPTS", "8"))
MODELS = ("countdown-blocks", "sdar-moe", "llada2")


class Model:
    """A model, what it is found by, prompts with the most tokens of their answers, and the
    logits of the texts that were read so far.
    """

    def __init__(self, name: str, folder: Path) -> None:
        published = {"sdar-moe": SDAR_MOE, "llada2": LLADA2}.get(name)
        self.name = name if published is None else str(published.write(folder))
        if published is not None:
            _never_write_masks(folder / published.called, published.mask_id)
        self.llm, random = LLM(self.name), np.random.default_rng(0)
        self.runner = Runner(self.llm.predictor, {})
        length, lengths = (self.llm.predictor.info.block_length or 0, random.integers(1, 20, NUM))
        self.prompts = [random.integers(8, 25, size).tolist() for size in lengths]
        if published is None:
            texts = [f"{a},{b},{c} -> {a + b - c}" for a, b, c in random.integers(2, 60, (NUM, 3))]
            self.prompts = [self.llm.planner.prompt_ids(text).tolist() for text in texts]
        self.most = [2 * length - len(prompt) % length for prompt in self.prompts]

    def served(self, algorithm: str) -> Served:
        edits = {"delete_token_id": 9, "split_token_id": 11}
        return Served(self.runner, algorithm, ALGORITHMS[algorithm], self.name, **edits)


def _never_write_masks(folder: Path, mask_id: int) -> None:
    """Take the mask's row out of a random head: SGLang writes what is likeliest, a mask too."""
    with edited(folder) as weights:
        weights["lm_head.weight"][mask_id] = 0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    return {name: Model(name, tmp_path_factory.mktemp(name)) for name in MODELS}


@pytest.fixture(params=[(name, rule) for name in MODELS for rule in ALGORITHMS], ids="-".join)
def case(
    request: pytest.FixtureRequest, models: dict[str, Model], version: str
) -> tuple[Model, str]:
    return models[request.param[0]], request.param[1]


def test_records_change_no_token_and_no_forward_and_tell_what_dise_score_does(
    case: tuple[Model, str],
) -> None:
    model, algorithm = case
    runner, served = model.runner, model.served(algorithm)
    for num_rows in (1, 3, 8):
        for fdfo in (False, True):
            asked = (model.prompts, model.most, num_rows, fdfo)
            start = runner.num_forwards
            plain, _ = served.write(*asked, is_plain=True)
            between = runner.num_forwards
            reqs, told = served.write(*asked)
            assert runner.num_forwards - between == between - start
            assert [req.output_ids for req in reqs] == [req.output_ids for req in plain]
            assert len(told) == len(reqs) == NUM
            if (num_rows, fdfo) == (1, False):
                first = told
            for number, info in told.items():
                assert info["step_maps"] == first[number]["step_maps"]
                assert info["dise"]["num_edits"] == first[number]["dise"]["num_edits"]
                for key in ("written", "dise_logprobs"):
                    assert info[key] == pytest.approx(first[number][key], abs=1e-5)
    texts = [req.output_ids.tolist() for req in reqs]
    scored = model.llm.score(model.prompts, texts, ScoringParams(selector="response"))
    for req, answer in zip(reqs, scored, strict=True):
        expected = [token.logprob for token in answer.outputs[0].tokens][: req.finished_len]
        assert told[req.rid]["dise_logprobs"][: len(expected)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("rule", ["LowConfidence", "JointThreshold"])
@pytest.mark.parametrize("name", MODELS)
def test_step_maps_and_what_was_written_are_those_of_our_own_policies(
    models: dict[str, Model], version: str, name: str, rule: str
) -> None:
    model = models[name]
    served = model.served(rule)
    reqs, told = served.write(model.prompts, model.most, 3)
    from dise_sglang.confidence import _written_by

    params = _written_by(rule, ALGORITHMS[rule])
    assert params is not None
    for req, most in zip(reqs, model.most, strict=True):
        prompt = req.origin_input_ids.tolist()
        [answer] = model.llm.generate([prompt], params.model_copy(update={"max_tokens": most}))
        writing = answer.outputs[0].writing
        assert writing is not None
        own = slice(len(prompt), len(prompt) + req.finished_len)
        assert writing.ids[own].tolist() == req.output_ids[: req.finished_len].tolist()
        assert told[req.rid]["written"] == pytest.approx(writing.logprobs[own].tolist(), abs=1e-5)
        places, length = np.arange(len(prompt), own.stop), served.config.block_size
        for block in np.unique(places // length):
            inside = places[places // length == block]
            ours = np.unique(writing.steps[inside], return_inverse=True)[1]
            theirs = np.array(told[req.rid]["step_maps"])[inside - len(prompt)]
            assert theirs.min() >= 1
            assert (np.unique(theirs, return_inverse=True)[1] == ours).all()


@pytest.fixture(scope="module")
def gemma() -> Any:
    return network()


def renoising(runner: CanvasRunner) -> Served:
    return Served(
        runner, "Gemma4Renoise", SETTINGS, "no-model-of-ours", block_size=LENGTH,
        mask_id=-1, requires_separate_context_encoding=True, capture_input_preparation=False,
    )  # fmt: skip


def by_hand(seen: list[Seen]) -> tuple[dict[str, Any], int]:
    """Return what is to be told of a canvas, and after how many of its forwards it was done,
    from what they saw and told: naively, in float64.
    """
    best, steps, written = np.full(LENGTH, -1), np.zeros(LENGTH, int), np.zeros(LENGTH)
    edits = count = 0
    for number, last in enumerate(seen, 1):
        logits = last.logits.double()
        logprobs = torch.log_softmax(logits, -1).numpy()
        now = logprobs.argmax(-1)
        tempered = torch.log_softmax(logits / temperature(number), -1).numpy()
        is_sure = -(np.exp(tempered) * tempered).sum(-1).mean() < CONFIDENCE
        changed, own = now != best, logprobs[np.arange(LENGTH), now]
        edits += int((changed & (steps > 0)).sum())
        count += bool(changed.any())
        steps[changed], written[changed] = count, own[changed]
        if number == STEPS or (is_sure and not changed.any()):
            break
        best = now
    facts = {"ids": now, "step_maps": steps, "written": written, "dise_logprobs": own}
    return facts | {"was_there": last.ids.numpy() == now, "edits": edits}, number


def temperature(number: int) -> float:
    """Return the temperature of the step of a canvas of that number, from 1."""
    return T_MIN + (T_MAX - T_MIN) * (STEPS - number + 1) / STEPS


@pytest.mark.parametrize("fdfo", [False, True])
def test_a_canvas_of_noise_is_told_as_it_was_last_seen_for_no_forward_more(
    gemma: Any, version: str, fdfo: bool
) -> None:
    random = np.random.default_rng(0)
    prompts = [random.integers(4, SIZE, length).tolist() for length in (1, 5, 23, 30)]
    plain, runner = CanvasRunner(gemma), CanvasRunner(gemma)
    asked = (prompts, [20, 32, 10, 32], 3, fdfo)
    expected, _ = renoising(plain).write(*asked, is_plain=True)
    reqs, told = renoising(runner).write(*asked, custom={"dise": "prompt"})
    assert runner.num_forwards == plain.num_forwards
    assert [req.output_ids for req in reqs] == [req.output_ids for req in expected]
    lengths, there = set(), []
    for req in reqs:
        info, edits = told[req.rid], 0
        assert "prompt" not in info["dise"]
        for start in range(0, len(req.output_ids), LENGTH):
            context = (*req.origin_input_ids, *req.output_ids[:start])
            seen = [one for one in runner.seen if one.context == context]
            facts, number = by_hand(seen)
            own = slice(start, start + LENGTH)
            assert req.output_ids[own].tolist() == facts["ids"].tolist()
            end = len(info["step_maps"][own])  # of a canvas, or of the answer
            for key in ("step_maps", "was_there"):
                assert info[key][own] == facts[key][:end].tolist()
            for key in ("written", "dise_logprobs"):
                assert info[key][own] == pytest.approx(facts[key][:end].tolist(), abs=1e-5)
            before = seen[number - 2].logits / temperature(number - 1)
            logprobs = torch.log_softmax(runner.published(seen[number - 1], before), -1)
            published = logprobs[np.arange(LENGTH), facts["ids"]][:end].tolist()
            assert info["dise_logprobs"][own] == pytest.approx(published, abs=1e-5)
            edits += facts["edits"]
            lengths.add(number)
            there += info["was_there"][own]
        assert info["dise"]["num_edits"] == edits > 0
    assert len(lengths) > 2
    assert {*there} == {True, False}


def batch_of(num_rows: int, is_context: bool) -> Any:
    """Return a batch of empty contexts, or of canvases behind one token."""
    return SimpleNamespace(
        batch_size=num_rows, input_ids=torch.zeros(0 if is_context else num_rows * LENGTH).long(),
        forward_mode=SimpleNamespace(is_dllm_extend=lambda: not is_context),
        contexts=[np.zeros(1, np.int64)] * num_rows, rids=[str(row) for row in range(num_rows)],
        dllm_prompt_mask=None, dllm_input_preparation_state=None,
    )  # fmt: skip


def test_an_empty_batch_of_contexts_tells_nothing_and_the_next_batch_all(
    gemma: Any, version: str
) -> None:
    from sglang.srt.dllm.algorithm import get_algorithm

    runner = CanvasRunner(gemma)
    algorithm = get_algorithm(renoising(runner).config)
    assert algorithm.run(runner, batch_of(0, is_context=True)) == (None, [], None, None, False)
    assert runner.num_forwards == 0
    output, *_ = algorithm.run(runner, batch_of(2, is_context=False))
    assert [len(row["was_there"]) for row in output.customized_info[BLOCKS]] == [LENGTH, LENGTH]


class Tables(TorchDispatchMode):
    """Counts the tensors of at least so many numbers that are made."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.count = size, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            is_large = isinstance(one, torch.Tensor) and one.numel() >= self.size
            self.count += is_large and not func.is_view
        return made


def test_a_step_of_noise_makes_no_more_tables_over_the_vocabulary_than_sglang(version: str) -> None:
    from sglang.srt.dllm.algorithm import algo_name_to_cls, get_algorithm_cls

    length, size, counts = 128, 512, []
    config = SimpleNamespace(
        algorithm_config={}, block_size=length, mask_id=-1, first_done_first_out_mode=False,
        capture_input_preparation=False,
    )  # fmt: skip
    logits = torch.randn(length, size, generator=torch.Generator().manual_seed(0))
    for kind in (algo_name_to_cls["Gemma4Renoise"], get_algorithm_cls("Gemma4Renoise")):
        algorithm = kind(config)
        algorithm.vocab_size, algorithm.embed_tokens = size, torch.nn.Embedding(size, 4)
        algorithm.embed_tokens.embed_scale = 2.0
        batch = SimpleNamespace(batch_size=1, input_ids=torch.zeros(length).long(), rids=["a"])
        states = algorithm.init_step_state(batch)
        with torch.no_grad(), Tables(length * size) as tables:
            algorithm.step(batch, logits, states)
        counts.append(tables.count)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("gap", "expected"), [(19, -5.6028e-9), (40, -4.2484e-18), (0, -0.693147), (-40, -40.0)]
)
def test_a_sure_token_is_not_rounded_to_certainty(gap: float, expected: float) -> None:
    logits = torch.tensor([[3.0, 3.0 + gap, -math.inf]])
    [value] = own_logprobs(logits, torch.tensor([0]), torch.tensor([1])).tolist()
    assert value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_are_of_the_rows_that_are_asked_for(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    logits = (10 * torch.randn(90, 300, generator=random)).to(dtype)
    rows = torch.randint(90, (91,), generator=random)
    ids = torch.randint(300, rows.shape, generator=random)
    expected = torch.log_softmax(logits.double(), -1)[rows, ids]
    assert own_logprobs(logits, rows, ids).tolist() == pytest.approx(expected.tolist(), abs=1e-5)
