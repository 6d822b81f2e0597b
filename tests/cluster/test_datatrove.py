"""datatrove's pipelines: each document once, with its metadata and a score, whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dise_core import LLM, ScoringParams
from tests.jsonlines import records_of, written

pytest.importorskip("datatrove")

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from dise_cluster.datatrove import DiseFilter, DiseStep

if TYPE_CHECKING:
    from datatrove.data import DocumentsPipeline

PARAMS = ScoringParams(selector="response")


def corpus(folder: Path, number: int = 40) -> Path:
    """Write two files of documents, of which the last has no prompt that can be read."""
    folder.mkdir()
    rows: list[dict[str, Any]] = [
        {"id": f"d{n}", "text": f"{n}+2", "metadata": {"prompt": f"{n},2 -> 10", "source": n}}
        for n in range(number)
    ]
    rows[-1]["metadata"]["prompt"] = 7
    written(folder / "a.jsonl", *rows[: number // 2])
    written(folder / "b.jsonl", *rows[number // 2 :])
    return folder


def run(folder: Path, *steps: Any, **options: Any) -> list[dict[str, Any]]:
    """Run the steps between a reader and a writer, and return what was written, in any order."""
    output = JsonlWriter(str(folder / "out"), compression=None)
    pipeline = [JsonlReader(str(folder / "in")), *steps, output]
    LocalPipelineExecutor(pipeline, 2, logging_dir=str(folder / "logs"), **options).run()
    return [row for path in (folder / "out").iterdir() for row in records_of(path)]


class Dying:
    """A step that kills rank 1 in the middle, until a file is there."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, data: DocumentsPipeline, rank: int, world_size: int) -> DocumentsPipeline:
        for number, document in enumerate(data):
            if rank == 1 and number == 5 and not self.mark.exists():
                self.mark.touch()
                raise MemoryError("this rank dies")
            yield document


def test_documents_are_there_once_with_metadata_and_the_scores_of_one_process(
    tmp_path: Path,
) -> None:
    corpus(tmp_path / "in")
    rows = {row["id"]: row for row in run(tmp_path, DiseStep(params=PARAMS), workers=2)}
    assert sorted(rows) == sorted(f"d{n}" for n in range(40))
    assert all(row["metadata"]["source"] == int(row["id"][1:]) for row in rows.values())
    wrong = rows.pop("d39")["metadata"]
    assert wrong["dise_error"] == '"prompt" must be a text, not 7'
    assert wrong["dise_score"] is None
    prompts = [row["metadata"]["prompt"] for row in rows.values()]
    answers = LLM().score(prompts, [row["text"] for row in rows.values()], PARAMS)
    for row, answer in zip(rows.values(), answers, strict=True):
        score = answer.outputs[0].score.value
        assert row["metadata"]["dise_score"] == pytest.approx(score, abs=1e-5)
        assert row["metadata"]["dise_error"] is None


def test_a_rank_that_dies_runs_again_and_finished_ranks_do_not(tmp_path: Path) -> None:
    corpus(tmp_path / "in")
    with pytest.raises(MemoryError, match="this rank dies"):
        run(tmp_path, DiseStep(), Dying(tmp_path / "mark"), workers=1)
    finished = (tmp_path / "out" / "00000.jsonl").stat().st_mtime_ns
    rows = run(tmp_path, DiseStep(), Dying(tmp_path / "mark"), workers=1)
    assert (tmp_path / "out" / "00000.jsonl").stat().st_mtime_ns == finished
    assert sorted(row["id"] for row in rows) == sorted(f"d{n}" for n in range(40))


def test_a_filter_drops_what_is_below_its_threshold_and_tells_why(tmp_path: Path) -> None:
    corpus(tmp_path / "in")
    scores = [answer["metadata"]["dise_score"] for answer in run(tmp_path, DiseStep(), workers=1)]
    threshold = sorted(score for score in scores if score is not None)[20]
    excluded = JsonlWriter(str(tmp_path / "excluded"), compression=None)
    rest = DiseFilter(threshold, exclusion_writer=excluded)
    kept = run(tmp_path, DiseStep(), rest, workers=1, skip_completed=False)
    assert len(kept) == 19
    assert all(row["metadata"]["dise_score"] >= threshold for row in kept)
    dropped = [row for path in (tmp_path / "excluded").iterdir() for row in records_of(path)]
    reasons = [row["metadata"]["filter_reason"] for row in dropped]
    assert sorted(reasons) == ["dise_low"] * 20 + ["dise_unscored"]
