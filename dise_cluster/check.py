"""dise check: is every row of a corpus in its shards, once?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dise_app.cli import options


@options.verb()
def check(
    folder: Annotated[Path, typer.Argument(help="A folder of shards.", metavar="FOLDER")],
) -> None:
    """Count a folder's shards and rows, and those that are missing, doubled or failed.

    Exit code 1 if a shard or a row is missing or doubled, or of another run than
    dise-run.json, if an input file was corrupt, or if all rows failed.
    """
    import numpy as np

    from dise_cluster.folder import (
        Manifest,
        are_all_failed,
        corrupt_files,
        digest_of,
        failures,
        run_of,
        shard_path,
    )

    run = run_of(folder)
    name, count, ending = run["command"], run["num_shards"], run["ending"]
    paths = [shard_path(folder, name, index, count, ending) for index in range(1, count + 1)]
    by_path = {path: made for path in paths if (made := Manifest.of(path)) is not None}
    manifests = [*by_path.values()]
    total = max((manifest.total for manifest in manifests), default=0)
    times = np.zeros(total + 1, np.int64)
    for path in by_path:
        np.add.at(times, np.fromiter(_numbers(path), np.int64), 1)
    missing, doubled = int((times[1:] == 0).sum()), int((times[1:] > 1).sum())
    errors = sum(manifest.num_errors for manifest in manifests)
    problems = [f"{path.name} is missing or not whole" for path in paths if path not in by_path]
    problems += corrupt_files(manifests)
    problems += [
        f"{path.name} is of another run than dise-run.json: its settings, model or input differ"
        for path, manifest in by_path.items()
        if manifest.run != digest_of(run)
    ]
    if len({(manifest.run, manifest.total, manifest.source) for manifest in manifests}) > 1:
        problems.append("the shards are of several runs, or of an input that changed between them")
    if are_all_failed(manifests):
        problems.append("all rows failed")
    print(
        f"{int(times.sum())} of {total} rows in {len(manifests)} of {len(paths)} shards: "
        f"{missing} missing, {doubled} doubled, {errors} failed",
        *failures(manifests),
        *problems,
        sep="\n",
    )
    if missing or doubled or problems:
        raise typer.Exit(1)


def _numbers(path: Path) -> Iterator[int]:
    """Yield the numbers of the rows in a shard."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table

        from dise_cluster.answers import LINE

        yield from read_table(path, columns=[LINE])[LINE].to_pylist()
        return
    from dise_app.files.linefile import MAX_OWN_LINE
    from dise_app.files.lines import lines_of, parse
    from dise_cluster.rows import opened

    with opened(path) as file:
        for line in lines_of(file, MAX_OWN_LINE):
            yield int(str(parse(line, MAX_OWN_LINE)["line"]))
