"""Steps for pipelines of datatrove, which add a score to documents."""

from __future__ import annotations

from typing import Unpack

from datatrove.data import Document, DocumentsPipeline
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.writers.disk_base import DiskWriter
from datatrove.utils.batching import batched

from dise_cluster.workers import DiseScorer
from dise_core import ScoringParams
from dise_core.front.llm import EngineOptions

__all__ = ["DiseFilter", "DiseStep"]

GROUP = 512
"""Documents that are scored together."""

OF_ANSWERS = {"dise_text", "dise_outputs", "dise_finish_reason", "dise_seed"}
"""Columns of DiseScorer that say nothing new about a given text."""


class DiseStep(PipelineStep):  # type: ignore[misc]
    """Scores each document's text given its metadata's `prompt` (or `prompt_ids`), if
    any. One that cannot be scored goes on with the reason in its metadata, as
    `dise_error`.

    Takes what DiseScorer takes. Each rank loads a model of its own, once it runs.
    """

    name, type = "DiSE", "🎯 - SCORER"

    def __init__(
        self,
        model: str = "countdown",
        params: ScoringParams | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        super().__init__()
        self.model, self.params, self.options = model, params, options

    def run(self, data: DocumentsPipeline, *_: int) -> DocumentsPipeline:
        scorer = DiseScorer(self.model, self.params, **self.options)
        for group in batched(data, GROUP):
            with self.track_time("group"):
                rows = [{**document.metadata, "response": document.text} for document in group]
                columns = scorer.columns(rows)
            for name in columns.keys() - OF_ANSWERS:
                for document, value in zip(group, columns[name].to_pylist(), strict=True):
                    document.metadata[name] = value
            yield from group


class DiseFilter(BaseFilter):  # type: ignore[misc]
    """Keeps documents that a DiseStep gave a score of at least the threshold. All others,
    those without a score too, are dropped: the exclusion_writer gets them, with their
    `filter_reason`: dise_low or dise_unscored.
    """

    name = "DiSE"

    def __init__(self, threshold: float, exclusion_writer: DiskWriter | None = None) -> None:
        super().__init__(exclusion_writer)
        self.threshold = threshold

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        score = doc.metadata["dise_score"]
        if score is None:
            return False, "dise_unscored"
        return score >= self.threshold or (False, "dise_low")
