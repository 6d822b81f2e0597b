"""SGLang's own loops with a record of what they write, beside SGLang alone and beside ours."""

import os
from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM, ScoringParams
from tests.published import LLADA2, SDAR_MOE
from tests.reference_backbone import edited
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
