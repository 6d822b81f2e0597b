"""What is told of a request: its edits, its probability, nothing once it is aborted."""

import gc
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dise_core import LLM, InputError
from dise_core.scoring.calibration import Calibration
from dise_sglang.confidence import CALIBRATION, confidences_of
from tests.reference_diffusion_gemma import CANVAS, write
from tests.sglang.served import Runner, Served
from tests.sglang.test_recording import Model

MODEL = "countdown-blocks"
PROMPTS = ["83,18,75 -> 10", "8,3,5 -> 10", "11,42,7 -> 46", "9,9,9 -> 9"]
CALIBRATED = {
    **Calibration.load(LLM(MODEL, lazy=True).predictor.calibration_files[0]).to_dict(),
    "selector": "response-text", "holds_for": {"texts": "written", "settings": {
        "max_tokens": [8, 64], "unmasking": ["low-confidence-dynamic"], "tokens_per_step": [1],
        "unmasking_settings": [{"threshold": 0.95}]}},
}  # fmt: skip


class Logged(Runner):
    """A runner of one text that keeps the blocks that it saw, and where they stood."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.seen: list[tuple[int, list[int]]] = []

    def forward(self, forward_batch: Any, **more: object) -> Any:
        self.seen.append((len(forward_batch.contexts[0]), forward_batch.input_ids.tolist()))
        return super().forward(forward_batch, **more)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(MODEL)


def prompts_of(llm: LLM) -> list[list[int]]:
    return [llm.planner.prompt_ids(prompt).tolist() for prompt in PROMPTS]


def served(llm: LLM, name: str = "LowConfidence", settings: Any = None) -> Served:
    return Served(Runner(llm.predictor, {}), name, settings or {}, MODEL)


def test_an_aborted_request_leaves_nothing(llm: LLM, version: str) -> None:
    from dise_sglang.recording import Block

    for fdfo in (False, True):
        sglang, most = served(llm, settings={"threshold": 1.0}), [64] * len(PROMPTS)
        reqs, told = sglang.write(prompts_of(llm), most, 4, fdfo, aborted=[1, 3])
        assert told.keys() == {0, 2}
        assert not reqs[1].finished()
        algorithm = sglang.algorithm
        del reqs, told
        gc.collect()
        assert not any(type(thing) is Block for thing in gc.get_objects())
        assert algorithm.stepped == []


def test_edits_are_the_written_tokens_that_a_later_step_replaced(
    version: str, tmp_path: Path
) -> None:
    model = Model("sdar-moe", tmp_path)
    sglang, total, mask = (
        model.served("JointThreshold"),
        0,
        model.llm.predictor.info.special.mask_id,
    )
    for prompt in model.prompts:
        sglang.runner = Logged(model.llm.predictor, model.runner.known)
        _, told = sglang.write([prompt], [12], 1)
        seen = sglang.runner.seen
        pairs = [(a, b) for (at, a), (after, b) in pairwise(seen) if at == after]
        edits = sum(x not in (mask, y) for a, b in pairs for x, y in zip(a, b, strict=True))
        assert told[0]["dise"]["num_edits"] == edits
        total += edits
    assert total > 0


MASK, DELETE, SPLIT = 9, 10, 11


class Scripted:
    """A model that says, of each forward, which token it likes at each place."""

    def __init__(self, likes: list[list[int]]) -> None:
        self.likes, self.number = likes, 0

    def forward(self, forward_batch: Any, **_: object) -> Any:
        logits = torch.zeros(4, 12)
        for place, token in enumerate(self.likes[self.number]):
            logits[place, token] = 2.0 + self.number + place / 8
        self.number += 1
        output = SimpleNamespace(full_logits=logits, customized_info=None)
        return SimpleNamespace(logits_output=output, can_run_graph=False)


def told_of(likes: list[list[int]], algorithm: str, settings: dict[str, Any]) -> Any:
    """Return the tokens that an algorithm writes behind 8, and what is told of their block."""
    from sglang.srt.dllm.algorithm import get_algorithm

    from dise_sglang.recording import BLOCKS

    config = SimpleNamespace(
        algorithm=algorithm, algorithm_config=settings, block_size=4, mask_id=MASK,
        delete_token_id=DELETE, split_token_id=SPLIT, first_done_first_out_mode=False,
    )  # fmt: skip
    batch = SimpleNamespace(
        batch_size=1, input_ids=torch.tensor([8, MASK, MASK, MASK]), dllm_prompt_mask=None
    )
    output, ids, *_ = get_algorithm(config).run(Scripted(likes), batch)
    [told] = output.customized_info[BLOCKS]
    return ids[0].tolist(), told


def logprob(number: int, place: int) -> float:
    like = torch.tensor([2.0 + number + place / 8, *[0.0] * 11])
    return float(torch.log_softmax(like, 0)[0])


def test_what_is_known_of_a_token_goes_with_it_where_others_are_inserted_and_deleted(
    version: str,
) -> None:
    # [8 | . . .] is written [8 1 2 3]; 1 goes, then a mask comes before 3, and 3 falls out.
    likes = [[8, 1, 2, 3], [8, DELETE, 2, 3], [8, 2, 3, 4], [8, 2, SPLIT, 4], [8, 2, 5, 3],
             [8, 2, 5, 3]]  # fmt: skip
    ids, told = told_of(likes, "JointThresholdInDel", {"threshold": 0.0})
    assert ids == [2, 5, 3]
    assert told["step_maps"] == [0, 1, 5, 1]
    expected = [logprob(0, 2), logprob(4, 2), logprob(0, 3)]
    assert told["written"][1:] == pytest.approx(expected, abs=1e-6)
    assert told["dise_logprobs"][1:] == pytest.approx([logprob(5, n) for n in (1, 2, 3)], abs=1e-6)
    assert told["edits"] == 2


def calibrated(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    (folder / "calibration.json").write_text(json.dumps(CALIBRATED | changes))
    monkeypatch.setenv(CALIBRATION, str(folder / "calibration.json"))


def test_a_calibration_tells_probabilities_of_what_it_holds_for_and_of_nothing_else(
    llm: LLM, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(tmp_path, monkeypatch)
    fitted = Calibration.load(tmp_path / "calibration.json")
    sglang = served(llm)
    _, told = sglang.write(prompts_of(llm), [64] * len(PROMPTS), 3)
    for info in told.values():
        score = info["dise"]["score"]
        assert (score["scorer"], score["selector"]) == ("dise", "response-text")
        assert info["dise"]["probability"] == fitted.probability(score["value"]) is not None
    for other, why in (
        (served(llm, settings={"threshold": 0.5}), "unmasking_settings.threshold"),
        (
            served(llm, "JointThreshold"),
            "with unmasking low-confidence-dynamic, and this has llada2-editing",
        ),
        (served(llm, "JointThreshold", {"penalty_lambda": 1}), "writes as no policy does"),
    ):
        _, told = other.write(prompts_of(llm)[:1], [64], 1)
        assert told[0]["dise"]["probability"] is None
        assert why in told[0]["dise"]["uncalibrated"]


def test_answers_that_no_policy_of_ours_writes_so_are_scored_and_uncalibrated(
    llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(tmp_path, monkeypatch, holds_for={"texts": "written"})
    confidences = confidences_of(MODEL, "Another", {})
    [prompt, *_], [ids] = prompts_of(llm), [llm.planner.prompt_ids("18-8=10").tolist()]
    columns = [1] * len(ids), [-0.5] * len(ids), [-0.25] * len(ids)
    told = confidences.tell(prompt, ids, columns, 64)
    assert told["score"]["value"] == -0.25
    assert told["probability"] is None
    assert told["uncalibrated"] == ("SGLang's Another writes as no policy does that we calibrate.")


NESTED = {
    "max_denoising_steps": 9, "sampler_config": {"entropy_bound": 2.0}, "t_max": 2.0,
    "stopping_config": {"stability_threshold": 3},
}  # fmt: skip


@pytest.mark.parametrize("settings", [{}, NESTED])
def test_a_canvas_is_written_by_the_policy_of_the_same_settings(
    version: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    from sglang.srt.dllm.algorithm import algo_name_to_cls

    config = SimpleNamespace(
        algorithm_config=settings, block_size=CANVAS, mask_id=-1, first_done_first_out_mode=False,
        capture_input_preparation=False,
    )  # fmt: skip
    theirs = vars(algo_name_to_cls["Gemma4Renoise"](config))
    confidences = confidences_of(str(write(tmp_path)), "Gemma4Renoise", settings)
    ours = confidences.params.unmasking_settings
    assert len(ours) == 6
    assert ours == {name: theirs[name] for name in ours}
    ids = [*range(20, 50)]
    told = confidences.tell([9, 10, 11], ids, ([1] * 30, [-0.5] * 30, [-0.25] * 30), CANVAS)
    assert told["score"]["value"] == -0.25
    assert "no policy" not in told.get("uncalibrated", "")


def test_one_for_answers_with_any_settings_is_still_about_ours_alone(
    llm: LLM, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(tmp_path, monkeypatch, holds_for={"texts": "written"})
    for settings, has_probability in (({}, True), ({"penalty_lambda": 1}, False)):
        _, told = served(llm, "JointThreshold", settings).write(prompts_of(llm)[:1], [64], 1)
        assert (told[0]["dise"]["probability"] is not None) == has_probability


def test_a_calibration_of_another_model_starts_no_server(
    llm: LLM, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(tmp_path, monkeypatch, model="another")
    with pytest.raises(InputError, match="with model another, and this has countdown-blocks"):
        served(llm).write(prompts_of(llm)[:1], [8], 1)


def test_openai_answers_have_a_dise_member_and_stay_of_their_class(version: str) -> None:
    from sglang.srt.entrypoints.openai.protocol import (
        CompletionResponse,
        CompletionResponseChoice,
        UsageInfo,
    )
    from sglang.srt.entrypoints.openai.serving_completions import OpenAIServingCompletion

    choice = CompletionResponseChoice(index=0, text="x", finish_reason="stop")
    plain = CompletionResponse(id="a", model="m", choices=[choice], usage=UsageInfo())
    build = OpenAIServingCompletion()._build_completion_response
    told = {"score": {"value": -0.5}}
    answer = build(plain, [{"meta_info": {"dise": told}}], 0)
    assert isinstance(answer, CompletionResponse)
    assert answer.model_dump() == {**plain.model_dump(), "dise": [told]}
    assert build(plain, [{"meta_info": {}}], 0) is plain


def test_a_stream_tells_each_token_once_and_the_score_at_its_end(version: str) -> None:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from dise_sglang.requests import ANSWER

    state = SimpleNamespace(customized_info_accumulated={}, customized_info_reported_keys=set())
    told, metas = {"num_edits": 0}, []
    for steps, ends, reason in (([1, 2], [None, None], None), ([1], [told], {"type": "stop"})):
        info = {"step_maps": [[], steps], ANSWER: [[], ends]}
        metas.append({})
        TokenizerManager().update_request_meta_info(metas[-1], state, info, 1, reason)
    assert "dise" not in metas[0]
    assert metas[1] == {"step_maps": [1, 2, 1], "dise": told}
    assert state.customized_info_accumulated.keys() == {"step_maps"}


def test_an_algorithm_with_a_loop_of_its_own_is_left_as_it_is(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    from sglang.srt.dllm.algorithm.base import DllmAlgorithm

    from dise_sglang.recording import recorded

    alone = type("EBSampling", (DllmAlgorithm,), {"run": lambda self, *_: None})
    stepping = type("EBSampling", (DllmAlgorithm,), {"step": lambda self, *_: []})
    assert recorded(alone) is alone
    assert "EBSampling has a loop of its own" in caplog.text
    assert recorded(stepping).__mro__[2] is stepping
    assert recorded(unknown := type("Unknown", (DllmAlgorithm,), {})) is unknown


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("is_vectorized", [False, True])
def test_what_is_told_is_the_models_before_a_penalty(version: str, is_vectorized: bool) -> None:
    settings = {"threshold": 0.0, "penalty_lambda": 1.0, "vectorized_decoding": is_vectorized}
    _, told = told_of([[8, 1, 2, 3]] * 3, "JointThreshold", settings)
    for key, number in (("written", 0), ("dise_logprobs", 1)):
        expected = [logprob(number, place) for place in (1, 2, 3)]
        assert told[key][1:] == pytest.approx(expected, abs=1e-6)
