"""Corpora of the embedded model, and what stands in a folder of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.commands import Dise, Run
from tests.jsonlines import records_of, written

WRITE = ("--max-tokens", 8, "--block-length", 8, "--temperature", 0.9, "--seed", 5)


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "prompt": f"{n + 1},18,75 -> 10"} for n in range(number)]


def corpus(folder: Path, number: int = 12) -> Path:
    """Write two files of prompts, and return their folder."""
    folder.mkdir()
    written(folder / "a.jsonl", *rows(number)[: number // 2])
    written(folder / "b.jsonl", *rows(number)[number // 2 :])
    return folder


def answers(folder: Path) -> dict[int, tuple[object, ...]]:
    """Return the id, seed and texts of each row by its number; each is there once."""
    records = [record for path in folder.glob("*.jsonl") for record in records_of(path)]
    found = {
        record["line"]: (record["id"], record["seed"], [one["text"] for one in record["outputs"]])
        for record in records
    }
    assert len(found) == len(records)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder but for what a killed process left."""
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return {path.name: path.read_bytes() for path in paths}


def in_shards(dise: Dise, num_shards: int, *words: object) -> Run:
    """Make the first shard, as a scheduler would, then the others; return the last run."""
    first = dise(*words, "--shard", f"1/{num_shards}")
    assert first.code < 2, first.err
    return dise(*words, "--resume")
