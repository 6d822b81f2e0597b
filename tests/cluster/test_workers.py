"""Workers for pipelines: columns in, columns out, without Ray and in its datasets."""

from __future__ import annotations

import numpy as np
import pytest

from dise_cluster.workers import DiseDecider, DiseGenerator, DiseScorer
from dise_core import LLM, InputError, SamplingParams, ScoringParams
from dise_decide import ChoiceQuestion, DecisionParams, ScoreQuestion
from dise_decide.llm import DecidingLLM

pyarrow = pytest.importorskip("pyarrow")

WRITE = SamplingParams(max_tokens=8, block_length=8, temperature=0.9, seed=5)
SCALE = ScoreQuestion(instructions="7", levels=["1", "2", "3"])


def test_scores_are_those_of_llm_and_a_wrong_row_is_an_error() -> None:
    batch = {
        "prompt": np.array(["1,2 -> 3", "1,2 -> 3"], object),
        "response": np.array(["1+2=3", None], object),
    }
    table = DiseScorer()(batch)
    [answer] = LLM().score("1,2 -> 3", "1+2=3", ScoringParams(logprobs=None))
    assert table["dise_score"].to_pylist()[0] == pytest.approx(answer.outputs[0].score.value)
    assert table["dise_score"].to_pylist()[1] is None
    assert "needs either" in table["dise_error"][1].as_py()
    assert table["dise_logprobs"].to_pylist() == [None, None]


def test_an_empty_batch_has_the_columns_of_a_full_one() -> None:
    scorer = DiseScorer(params=ScoringParams(logprobs=0))
    full = scorer(pyarrow.table({"response": ["1+2", "2+1"]}))
    assert scorer(full.schema.empty_table()).schema == full.schema
    assert scorer(full) == full
    assert len(full["dise_logprobs"][0]) > 0


def test_answers_do_not_depend_on_batches_and_earlier_errors_stay() -> None:
    table = pyarrow.table({"id": ["a", "b", None], "prompt": ["1,2 -> 3", "1,2 -> 3", "1,2 -> 3"]})
    writer = DiseGenerator("countdown", WRITE)
    whole = writer(table)
    parts = [writer(table.slice(start, 1)) for start in (2, 1, 0)]
    for name in ("dise_seed", "dise_text"):
        assert whole[name].to_pylist() == [part[name][0].as_py() for part in reversed(parts)]
    assert len(set(whole["dise_seed"].to_pylist())) == 3
    assert whole["dise_error"].to_pylist()[2] == 'needs an "id", of which its seed is made'
    scored = DiseScorer()(whole.append_column("response", whole["dise_text"]))
    assert scored["dise_error"].to_pylist() == whole["dise_error"].to_pylist()


def test_decisions_are_columns_of_the_same_types_in_every_batch() -> None:
    questions = [ChoiceQuestion(instructions="5+8", choices=["+", "-"]), SCALE]
    decider = DiseDecider("countdown", questions, DecisionParams(layout="cloze"))
    full = decider(pyarrow.table({"input": ["1,2 -> 3", None]}))
    assert decider(full.schema.empty_table()).schema == full.schema
    assert full["dise_error"].to_pylist() == [None, 'needs "input", a text']
    expected = DecidingLLM().decide("1,2 -> 3", questions, DecisionParams(layout="cloze")).answers
    (choice, level), nothing = full["dise_answers"].to_pylist()
    assert nothing == []
    assert (choice["choice"], choice["score"]) == (expected[0].choice, None)
    assert level["score"] == pytest.approx(expected[1].score, abs=1e-5)
    assert sum(level["probabilities"]) == pytest.approx(1)


def test_wrong_params_end_before_the_first_row() -> None:
    with pytest.raises(InputError, match="unknown scorer 'nope'"):
        DiseScorer(params=ScoringParams(scorer="nope"))
    with pytest.raises(InputError, match="needs a seed"):
        DiseGenerator("countdown", SamplingParams())
    with pytest.raises(InputError, match="at least 1 item"):
        DiseDecider("countdown", [])


@pytest.mark.usefixtures("ray_here")
def test_a_worker_answers_each_row_of_a_dataset_once() -> None:
    import ray

    rows = [{"number": n, "response": f"{n}+2"} for n in range(60)]
    answers = (
        ray.data.from_items(rows)
        .map_batches(
            DiseScorer,
            fn_constructor_kwargs={"params": ScoringParams(selector="response")},
            compute=ray.data.ActorPoolStrategy(size=1),
            batch_size=16,
            batch_format="pyarrow",
        )
        .take_all()
    )
    assert sorted(row["number"] for row in answers) == list(range(60))
    assert all(row["dise_score"] < 0 for row in answers)
