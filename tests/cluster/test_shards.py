"""Shards: each row once, whatever dies, and the same answers however they are cut."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dise_adapters.embedded import CountdownPredictor
from dise_app.terminal import progress
from dise_cluster.columns import row_seed
from dise_cluster.rows import input_files, read_shard
from dise_cluster.shard import ShardJob
from dise_core import LLM
from dise_decide import ChoiceQuestion, DecisionParams
from dise_decide.llm import DecidingLLM
from tests.cluster.corpora import WRITE, answers, contents, corpus, in_shards, rows
from tests.commands import Dise
from tests.jsonlines import records_of, written

parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")


def asked(source: object, output: object, *more: object) -> list[object]:
    return ["generate", "--input", source, "--output", output, *WRITE, *more]


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    num_shards=st.integers(1, 8),
    group=st.integers(1, 4),
    is_parquet=st.booleans(),
)
def test_every_row_is_in_exactly_one_shard(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    num_shards: int,
    group: int,
    is_parquet: bool,
) -> None:
    folder, expected = tmp_path_factory.mktemp("in"), []
    for name, size in enumerate(sizes):
        ids = list(range(len(expected), len(expected) + size))
        expected += ids
        if is_parquet:
            table = pyarrow.table({"id": pyarrow.array(ids, pyarrow.int64())})
            parquet.write_table(table, folder / f"{name}.parquet", row_group_size=group)
        else:
            written(folder / f"{name}.jsonl", *({"id": each} for each in ids))
    shards = [read_shard(input_files(folder), i, num_shards) for i in range(1, num_shards + 1)]
    found = sorted((row.number, row.record["id"]) for shard in shards for row in shard.rows)
    assert found == [(each + 1, each) for each in expected]
    assert {shard.num_total for shard in shards} == {len(expected)}
    if not is_parquet:
        assert all(
            (row.number - 1) % num_shards == i for i, s in enumerate(shards) for row in s.rows
        )


def test_a_rows_seed_is_the_beginning_of_a_digest() -> None:
    digest = hashlib.sha256(b'[5, "r1"]').hexdigest()
    assert row_seed(5, "r1") == int(digest[:16], 16)


def test_answers_depend_neither_on_shards_nor_on_batches_nor_on_order(
    dise: Dise, tmp_path: Path
) -> None:
    source = corpus(tmp_path / "in")
    for name, more in {
        "1": (),
        "3": ("--max-num-seqs", 1),
        "8": ("--model-args", "max_batch_tokens=64"),
    }.items():
        run = in_shards(dise, int(name), *asked(source, tmp_path / name, *more))
        assert f"dise: 12 rows, in {name} of {name} shards" in run.err
    whole = answers(tmp_path / "1")
    assert whole == answers(tmp_path / "3") == answers(tmp_path / "8")
    written(tmp_path / "reversed.jsonl", *reversed(rows(12)))
    in_shards(dise, 2, *asked(tmp_path / "reversed.jsonl", tmp_path / "back"))
    assert sorted(map(str, whole.values())) == sorted(map(str, answers(tmp_path / "back").values()))


def test_a_killed_shard_is_made_again_to_the_byte(dise: Dise, tmp_path: Path) -> None:
    source, draw = corpus(tmp_path / "in", 60), random.Random(3)
    assert in_shards(dise, 4, *asked(source, tmp_path / "whole")).code == 0
    output = tmp_path / "killed"
    assert dise(*asked(source, output, "--shard", "2/4")).code == 0
    (output / "generate-00002-of-00004.jsonl").unlink()
    command = [sys.executable, "-m", "dise", *map(str, asked(source, output, "--resume"))]
    for _ in range(5):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        before = len(contents(output))
        while process.poll() is None and len(contents(output)) == before < 5:
            time.sleep(0.01)
        time.sleep(draw.random() / 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        whole = contents(tmp_path / "whole")
        assert all(whole[name] == content for name, content in contents(output).items())
    assert dise(*asked(source, output, "--resume")).code == 0
    assert contents(output) == contents(tmp_path / "whole")


def test_two_processes_make_one_shard_at_once(tmp_path: Path) -> None:
    source = corpus(tmp_path / "in")
    words = map(str, asked(source, tmp_path / "out", "--shard", "2/3", "--resume"))
    command = [sys.executable, "-m", "dise", *words]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=250)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert sorted(answers(tmp_path / "out")) == [2, 5, 8, 11]
    assert contents(tmp_path / "out").keys() == {"dise-run.json", "generate-00002-of-00003.jsonl"}


@pytest.mark.parametrize(
    ("change", "missing", "doubled"),
    [
        (lambda lines: [lines[0][:-9]], 6, 0),
        (lambda lines: lines[:2], 4, 0),
        (lambda lines: [*lines, lines[3]], 0, 1),
        (lambda lines: [*lines[:5], lines[5].replace('"line": 12', '"line": 11')], 1, 0),
        (lambda lines: ["no json"], 6, 0),
        (None, 6, 0),
    ],
)
def test_resume_keeps_a_shard_with_each_of_its_rows_once_and_makes_any_other_anew(
    dise: Dise,
    tmp_path: Path,
    change: Callable[[list[str]], list[str]] | None,
    missing: int,
    doubled: int,
) -> None:
    source, output = corpus(tmp_path / "in"), tmp_path / "out"
    in_shards(dise, 2, *asked(source, output))
    before = contents(output)
    refused = dise(*asked(source, output, "--shard", "1/2"))
    assert (refused.code, "--resume keeps what is whole" in refused.err) == (2, True)
    kept, other = (output / f"generate-0000{index}-of-00002.jsonl" for index in (1, 2))
    since = kept.stat().st_mtime_ns
    if change is None:
        other.unlink()
    else:
        other.write_text("".join(change(other.read_text().splitlines(keepends=True))))
    run = dise(*asked(source, output, "--resume"))
    assert run.code == 0
    assert "dise: 12 rows, in 2 of 2 shards" in run.err
    assert f"{missing} rows were missing and {doubled} doubled, and are made" in run.err
    assert (contents(output), kept.stat().st_mtime_ns) == (before, since)


def test_a_folder_of_an_older_version_goes_on_but_not_with_another_input(
    dise: Dise, tmp_path: Path
) -> None:
    """It noted the digest of the input beside each shard, with the shard's own."""
    source, output = written(tmp_path / "in.jsonl", *rows(6)), tmp_path / "out"
    in_shards(dise, 2, *asked(source, output))
    run, [first, second] = output / "dise-run.json", sorted(output.glob("*.jsonl"))
    note, whole = json.loads(run.read_bytes()), second.read_bytes()
    digest = note.pop("input_digest")
    assert digest == hashlib.sha256(source.read_bytes()).hexdigest()
    run.write_text(json.dumps(note))
    first.with_name(f"{first.name}.manifest.json").write_text(json.dumps({"source": digest}))
    second.unlink()
    assert dise(*asked(source, output, "--resume")).code == 0
    assert second.read_bytes() == whole
    source.write_text(source.read_text().replace("18", "19"))
    refused = dise(*asked(source, output, "--resume"))
    assert refused.code == 2
    assert f"holds a run with input_digest='{digest}', and this run has" in refused.err


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--shard", "1/3"), "num_shards=2, and this run has num_shards=3"),
        (("--top-k", 3), "top_k=0, and this run has"),
        (("--shard", "0/2"), "i from 1 to n, such as 3/4, not '0/2'"),
        (("--shard", "1/2", "--ray", "local"), "--shard i/n makes one shard, and --ray all"),
        (("--workers", 2), "--workers are Ray's: give --ray, too"),
        (("--scorer", "nope"), "unknown scorer 'nope'"),
        (("--shards", 2), "--shards was taken out: use --shard i/n"),
        (("--gpus-per-worker", 1), "--gpus-per-worker was taken out: each worker has"),
        (("--cpus-per-worker", 1), "--cpus-per-worker was taken out: each worker has"),
    ],
)
def test_another_run_in_the_folder_is_refused(
    dise: Dise, tmp_path: Path, more: tuple[object, ...], problem: str
) -> None:
    source, output = corpus(tmp_path / "in"), tmp_path / "out"
    in_shards(dise, 2, *asked(source, output))
    before = contents(output)
    refused = dise(*asked(source, output, *more, "--resume"))
    assert (refused.code, contents(output)) == (2, before)
    assert problem in refused.err


def test_shards_of_what_is_drawn_need_a_seed(dise: Dise, tmp_path: Path) -> None:
    words = ("generate", "--input", corpus(tmp_path / "in"), "--output", tmp_path / "out")
    assert "shards need --seed" in dise(*words).err


@pytest.mark.parametrize("name", ["afile/out", "/proc/none/out", "/proc/self"])
def test_a_folder_that_takes_no_shards_is_refused_before_the_model_is_loaded(
    dise: Dise, tmp_path: Path, name: str
) -> None:
    (tmp_path / "afile").touch()
    model = shutil.copytree(
        CountdownPredictor.folder(),
        tmp_path / "countdown",
        ignore=shutil.ignore_patterns("*.safetensors"),
    )
    words = asked(corpus(tmp_path / "in"), tmp_path / name, "--model", model)
    refused = dise(*words, "--shard", "1/2")
    assert refused.code == 2
    assert f"nothing can be written in the folder --output {tmp_path / name}: " in refused.err


def test_a_wrong_row_is_an_error_and_a_corrupt_file_is_named(dise: Dise, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    good = [{"prompt": "1,2 -> 3", "response": "1+2"}] * 4
    masks = [LLM().predictor.info.special.mask_id] * 2
    bad = [{"id": 1}, {"prompt": "1", "response": "1" * 9999}, {"response_ids": masks}]
    lines = written(tmp_path / "lines", *good, *bad).read_bytes() + b"no json\n"
    (source / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (source / "b.jsonl.gz").write_bytes(gzip.compress(lines)[:30])
    (source / "c.jsonl.gz").write_bytes(gzip.compress(lines))
    ran = in_shards(dise, 3, "score", "--input", source, "--output", output)
    assert ran.code == 1
    assert "16 rows, of which 8 failed, in 3 of 3 shards" in ran.err
    assert "b.jsonl.gz is corrupt" in ran.err
    path = output / "score-00002-of-00003.jsonl.gz"
    records = list(map(str, gzip.decompress(path.read_bytes()).splitlines()))
    assert len(records) == 5
    assert 'either \\"response\\" (text)' in "".join(records).replace("\\\\", "\\")


def test_a_run_in_which_every_row_fails_is_a_failure_and_says_why(
    dise: Dise, tmp_path: Path
) -> None:
    lines = [{"response": "1" * size} for size in (600, 700, 800)] + [{"text": "1+2"}]
    source, output = written(tmp_path / "in.jsonl", *lines), tmp_path / "out"
    too_long = r"3 failed: .* longer than the model's limit of 512 tokens"
    for shard in (("--shard", "1/1"), ("--resume",)):
        ran = dise("score", "--input", source, "--output", output, *shard)
        assert ran.code == 1
        assert "dise: 4 rows, of which 4 failed, in 1 of 1 shards" in ran.err
        assert re.search(f"dise: {too_long}", ran.err)
        assert "dise: 1 failed: needs either" in ran.err
    alone = dise("score", "--input", source, "--output", tmp_path / "out.jsonl")
    assert (alone.code, re.search(f"dise: {too_long}", alone.err) is not None) == (1, True)
    assert "dise: 0 answered, 4 failed" in alone.err


def test_rows_that_failed_are_told_apart_from_rows_with_errors_of_their_own(
    dise: Dise, tmp_path: Path
) -> None:
    error = {"type": "InputError", "message": "of another time"}
    lines = [{"response": "1+2", "error": error}, {"response": 7, "error": error}, {"error": "x"}]
    source, output = written(tmp_path / "in.jsonl", *lines), tmp_path / "out"
    for more in ((), ("--resume",)):
        ran = dise("score", "--input", source, "--output", output, "--shard", "1/1", *more)
        assert "dise: 3 rows, of which 2 failed, in 1 of 1 shards" in ran.err
        assert "of another time" not in ran.err


def test_a_pipe_is_told_the_share_of_the_shards_in_lines(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    ran = dise(
        *asked(corpus(tmp_path / "in", 60), tmp_path / "out", "--shard", "1/2", "--max-num-seqs", 2)
    )
    told = re.findall(r"^dise: (\d+)% of 1 shards done after \d+ s", ran.err, re.MULTILINE)
    shares = list(map(int, told))
    assert shares == sorted(shares)
    assert any(0 < share < 100 for share in shares)


def test_a_terminal_is_shown_a_bar_of_shards(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    ran = dise(*asked(corpus(tmp_path / "in", 60), tmp_path / "out"))
    assert (ran.code, "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in ran.err) == (0, True)
    assert re.search(r"\d+%", ran.err)


def test_zstd_is_read_and_written(dise: Dise, tmp_path: Path) -> None:
    lines = written(tmp_path / "lines", *rows(4)).read_bytes()
    packed = pyarrow.compress(lines, "zstd", asbytes=True)
    (tmp_path / "in.jsonl.zst").write_bytes(packed)
    output = tmp_path / "out"
    assert in_shards(dise, 2, *asked(tmp_path / "in.jsonl.zst", output)).code == 0
    assert (
        "4 rows, in 2 of 2 shards"
        in dise(*asked(tmp_path / "in.jsonl.zst", output, "--resume")).err
    )
    with pyarrow.input_stream(str(output / "generate-00002-of-00002.jsonl.zst")) as stream:
        assert [json.loads(line)["id"] for line in stream.read().splitlines()] == ["r1", "r3"]


def test_parquet_keeps_its_columns_and_gains_those_of_the_answers(
    dise: Dise, tmp_path: Path
) -> None:
    table = pyarrow.table(
        {
            "id": pyarrow.array([1, 2, 3], pyarrow.int32()),
            "prompt": ["1,2 -> 3", None, "1,2 -> 3"],
            "response": ["1+2", None, "2+1"],
        }
    )
    parquet.write_table(table, tmp_path / "in.parquet", row_group_size=1)
    words = ("score", "--input", tmp_path / "in.parquet", "--output", tmp_path / "out")
    ran = in_shards(dise, 2, *words)
    assert (ran.code, "dise: 1 failed: needs either" in ran.err) == (0, True)
    first, second = (
        parquet.read_table(tmp_path / "out" / f"score-0000{i}-of-00002.parquet") for i in (1, 2)
    )
    assert first.schema == second.schema
    assert first.select(table.column_names) == table.take([0, 2])
    assert first["dise_line"].to_pylist() == [1, 3]
    assert all(score < 0 for score in first["dise_score"].to_pylist())
    assert second["dise_score"].to_pylist() == [None]
    assert "needs either" in second["dise_error"][0].as_py()
    again = dise(*words, "--resume")
    assert (again.code, "1 failed: needs either" in again.err) == (0, True)
    assert "dise: 3 rows, of which 1 failed, in 2 of 2 shards" in again.err
    assert "dise: 0 rows were missing and 0 doubled" in again.err


@pytest.mark.parametrize("is_parquet", [False, True])
def test_decisions_have_shards_and_a_row_without_an_input_is_an_error(
    dise: Dise, tmp_path: Path, is_parquet: bool
) -> None:
    texts = ["1,2 -> 3", None, "83,18,75 -> 10"]
    if is_parquet:
        source = tmp_path / "in.parquet"
        parquet.write_table(pyarrow.table({"input": texts}), source, row_group_size=1)
    else:
        source = written(tmp_path / "in.jsonl", *({"input": text} for text in texts))
    output = tmp_path / "out"
    asked = ("decide", "--input", source, "--choice", "5+8=+,-", "--layout", "cloze")
    run = in_shards(dise, 2, *asked, "--output", output)
    assert (run.code, "3 rows, of which 1 failed, in 2 of 2 shards" in run.err) == (0, True)
    question = ChoiceQuestion(instructions="5+8", choices=["+", "-"])
    [expected] = (
        DecidingLLM().decide(str(texts[2]), [question], DecisionParams(layout="cloze")).answers
    )
    if is_parquet:
        table = parquet.read_table(output / "decide-00001-of-00002.parquet")
        [answer] = table["dise_answers"][1].as_py()
        assert (answer["choice"], answer["type"]) == (expected.choice, "choice")
        found = answer["probabilities"]
    else:
        [answer] = records_of(output / "decide-00001-of-00002.jsonl")[1]["answers"]
        found = [one["probability"] for one in answer["probabilities"]]
    assert found == pytest.approx([one.probability for one in expected.probabilities], abs=1e-5)


OWN_NAMES = {
    "error": ["none", "none"], "seed": ["abc", "abc"], "quality": [float("nan"), 1.0],
    "blob": [b"a", b"b"], "date": pyarrow.array([2**58, 1], pyarrow.timestamp("us")),
    "zone": pyarrow.array([1, 2], pyarrow.timestamp("s", "No/Where")),
    "inside": pyarrow.array([[2**58], []], pyarrow.list_(pyarrow.timestamp("us"))),
}  # fmt: skip


def test_columns_that_nobody_reads_stay_as_they_are(dise: Dise, tmp_path: Path) -> None:
    table = pyarrow.table({"input": ["1,2 -> 3"] * 2, "questions": [None] * 2, **OWN_NAMES})
    parquet.write_table(table, tmp_path / "in.parquet")
    run = ("decide", "--input", tmp_path / "in.parquet", "--output", tmp_path / "out")
    told = dise(*run, "--choice", "5+8=+,-", "--layout", "cloze")
    assert (told.code, "2 rows, in 1 of 1 shards" in told.err) == (0, True), told.err
    made = parquet.read_table(tmp_path / "out" / "decide-00001-of-00001.parquet")
    given = parquet.read_table(tmp_path / "in.parquet")
    assert str(made.select(given.column_names)) == str(given)
    assert made["dise_error"].null_count == 2


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ([{"dise_error": ["x"]}], "has a column 'dise_error', which answers are to have"),
        ([{"a": [1]}, {"a": ["x"]}], "columns of one name differ between files"),
        ([{"a": [1]}, {"a": [0.5]}], ""),
        ([{"a": ["x"]}, {"a": pyarrow.array(["y"], pyarrow.large_string())}], ""),
    ],
)
def test_columns_go_together_or_are_refused_before_any_pass(
    dise: Dise, tmp_path: Path, tables: list[dict[str, object]], problem: str
) -> None:
    (tmp_path / "in").mkdir()
    for name, columns in enumerate(tables):
        table = pyarrow.table({"response": ["1+2"], **columns})
        parquet.write_table(table, tmp_path / "in" / f"{name}.parquet")
    told = dise("score", "--input", tmp_path / "in", "--output", tmp_path / "out", "--shard", "1/1")
    assert (told.code, problem in told.err) == (2 if problem else 0, True), told.err


def test_files_are_what_their_names_say_and_are_read_once(dise: Dise, tmp_path: Path) -> None:
    source, blob = tmp_path / "in [1]", tmp_path / "blob"
    source.mkdir()
    parquet.write_table(pyarrow.table({"response": ["1+2"]}), blob)
    (source / "a.parquet").symlink_to(blob)
    (source / "b.parquet").symlink_to(source / "a.parquet")
    run = ("score", "--output", tmp_path / "out", "--input")
    assert "dise: 1 rows, in 1 of 1 shards" in dise(*run, source).err
    assert input_files(source) == [source / "a.parquet"]
    parquet.write_table(pyarrow.table({"response": ["1+2"]}), source / "ab.parquet")
    assert input_files(source) == [source / "a.parquet", source / "ab.parquet"]
    (tmp_path / "c.jsonl").write_bytes(blob.read_bytes())
    told = dise(*run[:2], tmp_path / "c", "--input", tmp_path / "c.jsonl", "--shard", "1/1")
    assert (told.code, "rename it to end in .parquet" in told.err) == (2, True), told.err


def test_an_input_that_changed_between_shards_is_refused(dise: Dise, tmp_path: Path) -> None:
    source, output = written(tmp_path / "in.jsonl", *rows(4)), tmp_path / "out"
    dise(*asked(source, output, "--shard", "1/2"))
    source.write_text(source.read_text().replace("18", "19"))
    refused = dise(*asked(source, output, "--shard", "2/2"))
    assert (refused.code, "holds a run with input_digest='" in refused.err) == (2, True)


def test_an_input_that_changes_while_it_is_answered_ends_the_run(
    dise: Dise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output, begin = (
        written(tmp_path / "in.jsonl", *rows(4)),
        tmp_path / "out",
        ShardJob.begin,
    )

    def changing(job: ShardJob[Any]) -> tuple[LLM, str]:
        begun = begin(job)
        source.write_text(source.read_text().replace("18", "19"))
        return begun

    monkeypatch.setattr(ShardJob, "begin", changing)
    ended = dise(*asked(source, output, "--shard", "1/2"))
    assert (ended.code, "the files of --input changed while their rows" in ended.err) == (2, True)
    assert contents(output).keys() == {"dise-run.json"}


def test_a_row_whose_id_is_null_has_a_seed_of_its_own(dise: Dise, tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", *({"id": None, "prompt": "1,2 -> 3"} for _ in range(2)))
    dise(*asked(source, tmp_path / "out", "--shard", "1/1"))
    assert len({seed for _, seed, _ in answers(tmp_path / "out").values()}) == 2
