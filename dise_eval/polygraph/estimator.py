"""Our scorers as lm-polygraph's estimators."""

from __future__ import annotations

import numpy as np
from lm_polygraph.estimators.estimator import Estimator

from dise_core import Floats, ScoringParams
from dise_core.records import Fields
from dise_eval.polygraph.model import DiseModel


class DiseEstimator(Estimator):  # type: ignore[misc]
    """The negative score of an answer, by any scorer and selector: higher is less sure.

    Its name in lm-polygraph's tables is SCORER:SELECTOR, and what its settings are.
    """

    def __init__(self, model: DiseModel, params: ScoringParams | None = None) -> None:
        """model: the one that the manager runs. params: what answers are scored by; None: what the
        model's own params say. Raises InputError for unknown names, and for a judge that is not
        loaded.
        """
        super().__init__(["dise_answers"], "sequence")
        asked = params or ScoringParams.of(model.params)
        catalog = model.llm.catalog
        scorer = catalog.scorer(asked.scorer, asked.scorer_settings)
        model.llm.planner.check_scorer(asked.scorer, scorer)
        selector = asked.selector or scorer.default_selector
        catalog.selector(selector)
        # A score needs no report on the tokens, which the answer has.
        self._params = asked.model_copy(update={"selector": selector, "logprobs": None})
        self._model = model

    def __str__(self) -> str:
        settings = self._params.scorer_settings
        pairs = ",".join(f"{name}={value}" for name, value in sorted(settings.items()))
        return ":".join(filter(None, [self._params.scorer, self._params.selector, pairs]))

    def __call__(self, stats: Fields) -> Floats:
        """Return the uncertainty of each answer of a batch, float64 [answers], in nats."""
        asked = zip(stats["input_texts"], stats["dise_answers"], strict=True)
        prompts = [
            text if isinstance(text, str) else output.prompt_token_ids for text, output in asked
        ]
        answers = [answer.outputs[0].token_ids for answer in stats["dise_answers"]]
        scored = self._model.llm.score(prompts, answers, self._params, chat=self._model.chat)
        return -np.array([output.outputs[0].score.value for output in scored])
