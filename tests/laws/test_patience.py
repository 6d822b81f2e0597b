"""What holds for Algorithm 1, whatever the scores are."""

from hypothesis import given
from hypothesis import strategies as st

from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_strategies.lengths.dise_flexible import DiSEFlexible
from dise_strategies.scorers.dise import DiSE
from dise_strategies.selectors.whole import Full
from tests.scripted_model import ScriptedModel, generated

scores = st.lists(st.integers(-8, 0).map(lambda n: n / 4), min_size=30, max_size=30)
limits = st.integers(1, 6)


controllers = st.builds(
    DiSEFlexible, max_iterations=st.integers(1, 12), patience=limits, mask_size=st.integers(1, 9)
)


@given(scores, controllers, st.integers(7, 25))
def test_algorithm_1_keeps_its_bounds_and_returns_the_best_it_saw(
    values: list[float], controller: DiSEFlexible, max_length: int
) -> None:
    model, scorer = ScriptedModel(values), SequenceScorer(DiSE(), Full())
    settings = {"max_tokens": 5, "block_length": 64, "tokens_per_step": 64}
    result, _ = generated(controller, model.read, max_length, scorer, **settings)
    seen = [step.score for step in result.trace]
    assert seen == values[: len(seen)]
    assert len(seen) - 1 <= controller.max_iterations - 1
    assert result.evaluation.score.value == max(seen)
    assert len(result.sequence.response) == 5 + seen.index(max(seen))
    assert len(result.sequence) <= max_length
    failures = len(seen) - 1 - seen.index(max(seen))
    reasons = {
        "patience": failures == controller.patience,
        "max_iterations": len(seen) == controller.max_iterations and failures < controller.patience,
        "context": 2 + 5 + len(seen) - 1 == max_length and failures < controller.patience,
    }
    assert reasons[str(result.stopped_by)]
