"""A folder of shards: the shards, their manifests, and the run's description."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, ValidationError

from dise_app.files.reasons import reasons
from dise_app.files.texts import json_file, refuse_other, write_json
from dise_core import InputError
from dise_core.files import opened_file
from dise_core.records import JsonFields, Record

RUN_FILE = "dise-run.json"
"""What the answers of all shards depend on."""


class Manifest(BaseModel):
    """Describes a shard. It is written after the shard, which counts only if its manifest
    fits.

    run: digest of the run's file. rows, source: digests of its rows, and of the input as
    it was read. reasons: the commonest of its errors. total: rows of all shards. corrupt:
    see ShardRows.
    sha256: of the shard's file.
    """

    shard: int
    run: str
    rows: str
    source: str
    num_rows: int
    num_errors: int
    reasons: dict[str, int] = Field(default_factory=dict)
    total: int
    corrupt: dict[str, str]
    versions: dict[str, str]
    sha256: str

    @classmethod
    def of(cls, shard: Path) -> Self | None:
        """Return the manifest of a shard if it is whole, else None."""
        try:
            with opened_file(manifest_path(shard)) as file:
                manifest = cls.model_validate_json(file.read())
            return manifest if manifest.sha256 == sha256_of(shard) else None
        except (OSError, ValidationError):
            return None


def shard_path(folder: Path, name: str, index: int, num_shards: int, ending: str) -> Path:
    """Return where shard `index` of a verb of that name stands."""
    return folder / f"{name}-{index:05}-of-{num_shards:05}.{ending}"


def manifest_path(shard: Path) -> Path:
    """Return where the manifest of a shard stands."""
    return shard.with_name(f"{shard.name}.manifest.json")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with opened_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def claim(folder: Path, run: JsonFields, usual: JsonFields) -> str:
    """Return the digest of a run, and describe the run in the folder unless it continues
    there. usual: see refuse_other.
    Raises InputError, naming the first difference, if the folder holds another run.
    """
    path, run = folder / RUN_FILE, json.loads(json.dumps(run))
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, run)
    claimed = run_of(folder)
    refuse_other(path, claimed, run, usual)
    return digest_of(claimed)


def digest_of(run: JsonFields) -> str:
    """Return the digest of a run by which manifests name it."""
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()


def run_of(folder: Path) -> Record:
    """Return the description of a folder's run. Raises InputError if there is none."""
    run = json_file(folder / RUN_FILE)
    if not isinstance(run, dict) or not {"command", "num_shards", "ending"} <= run.keys():
        raise InputError(f"{folder / RUN_FILE} was not written by dise", "output")
    return run


def failures(manifests: Sequence[Manifest]) -> list[str]:
    """Return the commonest reasons why rows failed, a line each."""
    return reasons(pair for manifest in manifests for pair in manifest.reasons.items())


def are_all_failed(manifests: Sequence[Manifest]) -> bool:
    """Return whether there are rows, all of which failed."""
    num_rows = sum(manifest.num_rows for manifest in manifests)
    return 0 < num_rows == sum(manifest.num_errors for manifest in manifests)


def corrupt_files(manifests: Iterable[Manifest]) -> list[str]:
    """Return what is wrong with files of the input, a sentence each."""
    corrupt = {name: why for manifest in manifests for name, why in manifest.corrupt.items()}
    return [f"{name} is corrupt, and read up to there: {why}" for name, why in corrupt.items()]


def packed(content: bytes, ending: str) -> bytes:
    """Return what a file with that ending holds: the same bytes for the same content."""
    if ending == "jsonl.gz":
        return gzip.compress(content, mtime=0)
    if ending == "jsonl.zst":
        import pyarrow

        return bytes(pyarrow.compress(content, "zstd", asbytes=True))
    return content
