"""Our scorers as lm-polygraph's estimators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from lm_polygraph.estimators.estimator import Estimator

from dise_core import Floats, Plan, RequestOutput, Score, ScoringParams
from dise_core.front.verbs import Job, results
from dise_core.models.prompts import Prompt
from dise_core.params.objects import name_of
from dise_core.plugins.kinds import SCORER, SELECTOR
from dise_core.records import Fields
from dise_eval.experiments.scoring import OF_SELECTOR, Contender
from dise_eval.polygraph.model import DiseModel


class DiseEstimator(Estimator):  # type: ignore[misc]
    """The negative score of an answer, by any scorer and selector: higher is less sure.

    Its name in lm-polygraph's tables is SCORER:SELECTOR, and what its settings are.
    """

    def __init__(self, model: DiseModel, params: ScoringParams | None = None) -> None:
        """model: the one that the manager runs. params: what answers are scored by; None:
        what the model's own params say. Raises InputError for unknown names, and for a
        judge that is not loaded.
        """
        super().__init__(["dise_answers"], "sequence")
        scoring = params or ScoringParams.of(model.params)
        catalog = model.llm.catalog
        scorer, label = catalog.required(SCORER, scoring), name_of(scoring.scorer)
        model.llm.planner.resolver.check_scorer(label, scorer)
        name = scoring.selector or scorer.default_selector
        self._params = scoring.model_copy(update={"selector": name})
        self._contender = Contender(label, scorer, catalog.required(SELECTOR, self._params))
        self._model = model

    def __str__(self) -> str:
        of_selector = self._params.selector_settings
        settings = {f"{OF_SELECTOR}{name}": value for name, value in of_selector.items()}
        settings |= self._params.scorer_settings
        pairs = ",".join(f"{name}={value}" for name, value in sorted(settings.items()))
        names = map(name_of, (self._params.scorer, self._params.selector))
        return ":".join(filter(None, [*names, pairs]))

    def __call__(self, stats: Fields) -> Floats:
        """Return the answers' uncertainty, float64 [answers], in nats."""
        pairs = zip(stats["input_texts"], stats["dise_answers"], strict=True)
        plans = [
            self._scored(text if isinstance(text, str) else answer.prompt_token_ids, answer)
            for text, answer in pairs
        ]
        return -np.array([score.value for score, _ in self._model.llm.do(Job(plans, results))])

    def _scored(self, prompt: Prompt, answer: RequestOutput) -> Plan[tuple[Score, int]]:
        planner, chat, output = self._model.llm.planner, self._model.chat, answer.outputs[0]
        [text] = planner.texts(prompt, [output.token_ids], self._params, chat)
        judge = planner.translation(prompt, chat)
        return self._contender.score(replace(text, writing=output.writing), judge)
