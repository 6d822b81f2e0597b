"""The probes of dise eval on the embedded model, and its measures against naive definitions."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from dise_core import LLM, Distribution, Read, SamplingParams
from dise_core.noise import Noise
from dise_eval.analysis.probes import Coherence, Ranks, jensen_shannon, wasserstein
from dise_eval.datasets import questions
from tests.commands import Dise

LINE = "--dataset countdown-short --limit 6 --max-tokens 36 --block-length 12 --tokens-per-step 6"
SHORT = LINE.split()
PARAMS = SamplingParams(max_tokens=36, block_length=12, tokens_per_step=6)


@pytest.mark.parametrize("seed", range(5))
def test_the_distances_are_those_of_scipy(seed: int) -> None:
    p, q = np.random.default_rng(seed).dirichlet(np.full(30, 0.1), 2)
    assert jensen_shannon(p, q) == pytest.approx(jensenshannon(p, q) ** 2)
    ids = np.arange(30)
    assert wasserstein(p, q) == pytest.approx(wasserstein_distance(ids, ids, p, q) / 30)
    assert jensen_shannon(p, p) == pytest.approx(0, abs=1e-12)
    assert jensen_shannon(np.eye(30)[0], np.eye(30)[1]) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("verb", "figure"),
    [
        ("ranks", "top_5"),
        ("distances", "true-mask"),
        ("coherence", "last-10"),
        ("correctness", "dise:full"),
        ("selectors", "dise:last-20"),
    ],
)
def test_each_analysis_writes_results_a_report_and_a_picture(
    dise: Dise, tmp_path: Path, verb: str, figure: str
) -> None:
    more = {"ranks": ("--trials", 20), "distances": (), "coherence": ()}
    drawn = more.get(verb, ("--temperature", 1.5, "--limit", 20))
    run = dise("eval", verb, *SHORT, *drawn, "--output", tmp_path)
    assert run.code == 0, run.err
    report = (tmp_path / "report.md").read_text()
    assert run.out.startswith(report.splitlines()[0].removeprefix("# "))
    assert figure in json.loads((tmp_path / "results.json").read_text())["figures"]
    assert (tmp_path / f"{verb}.png").read_bytes().startswith(b"\x89PNG")
    assert f"]({verb}.png)" in report
    if verb == "ranks":
        found = json.loads((tmp_path / "results.json").read_text())["figures"]
        assert [found[top]["the_paper"] for top in ("top_5", "top_10")] == [0.8885, 0.9614]


def test_a_run_with_another_number_of_trials_is_another_run(dise: Dise, tmp_path: Path) -> None:
    args = ("eval", "ranks", *SHORT, "--output", tmp_path)
    assert dise(*args, "--trials", 2).code == 0
    run = dise(*args, "--trials", 3)
    assert (run.code, "trials=2" in run.err) == (2, True), run.err
    run = dise("eval", "coherence", *SHORT, "--output", tmp_path / "other", "--trials", 3)
    assert (run.code, run.err.count("--trials is about ranks and distances")) == (2, 1)


@pytest.mark.parametrize("verb", ["ranks", "distances", "coherence"])
def test_without_a_token_to_probe_that_is_said(dise: Dise, tmp_path: Path, verb: str) -> None:
    only_ends = ("--constraint", "regex", "--constraint-setting", "regex=")
    run = dise("eval", verb, *SHORT, *only_ends, "--output", tmp_path / "run")
    assert (run.code, run.err.count("No text has a token to probe")) == (2, 1), run.err


def test_a_rank_is_the_number_of_likelier_tokens() -> None:
    llm = LLM("countdown")
    loaded = questions.load("countdown-short", limit=1)
    [question] = loaded.items
    probe = Ranks(llm, loaded, PARAMS, {question.id: "1+2=3"}, num_trials=4)
    [outcome] = llm.engine.run([probe.plan(question)])
    ranks = outcome.unwrap()["ranks"]
    [text] = llm.planner.texts(question.prompt, ["1+2=3"], PARAMS)
    random = Noise.for_request(0, text.ids, 0).generator()
    positions = random.choice(text.text_positions, 4)
    tokens = probe.random_tokens(random, 4)
    for rank, position, token in zip(ranks, positions, tokens, strict=True):
        ids = text.ids.copy()
        ids[position] = token
        [reading] = llm.predictor.read([Read(ids, np.array([position]), Distribution())])
        order = np.argsort(-reading.logprobs[0], kind="stable").tolist()
        assert order.index(int(text.ids[position])) == rank
        special = llm.predictor.info.special
        assert token not in {special.mask_id, *special.eos_ids}


def test_coherence_scores_the_tokens_that_are_replaced() -> None:
    llm, loaded = LLM("countdown"), questions.load("countdown-short", limit=1)
    [question] = loaded.items
    texts = {question.id: "18+75=93,93-83=10<answer>18+75-83</answer>"}
    [outcome] = llm.engine.run([Coherence(llm, loaded, PARAMS, texts).plan(question)])
    scores = outcome.unwrap()["scores"]
    assert set(scores) == {"full", "first-10", "mid-10", "last-10"}
    assert all(score["natural"] > score["randomized"] for score in scores.values())
