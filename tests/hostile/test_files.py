"""Files of JSON lines: what comes in, what is written, and what a resumed run finds there."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dise_adapters.embedded import CountdownPredictor
from dise_app.cli import answer, fill  # noqa: F401 (imported before `answer` is patched)
from dise_app.files.linefile import LineFile
from dise_app.files.lines import encoded
from dise_app.files.texts import write_json
from dise_core import LLM, SamplingParams
from dise_core.errors import DiseError, InputError
from dise_core.records import Record
from dise_core.testing import ToyPredictor
from dise_eval.datasets import questions
from dise_eval.experiments.experiments import Sampled
from dise_eval.experiments.journal import Journal
from dise_eval.experiments.run import run as run_experiment
from dise_eval.experiments.scoring import Contenders
from tests.commands import Dise, commands
from tests.hostile.bounds import bounded
from tests.jsonlines import answers_of, records_of

FAST = ("--max-tokens", 4, "--block-length", 4)


class HeedingToy(ToyPredictor):
    """Takes all options of loading."""

    heeds: ClassVar[frozenset[str] | None] = None


@pytest.fixture
def dise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dise:
    """Return a function that runs `dise ARGS...` on the toy model."""
    toy = [HeedingToy]
    monkeypatch.setattr(answer, "opened", lambda _, engine: LLM("toy", plugins=toy, **engine))
    return commands(monkeypatch, capsys)


def write(path: Path, *records: Any) -> Path:
    path.write_bytes(b"".join(r if isinstance(r, bytes) else encoded(r) for r in records))
    return path


def prompts(path: Path, count: int = 3) -> Path:
    return write(path, *({"prompt": "abcdefghij"[: n + 1], "id": n} for n in range(count)))


def numbers(path: Path) -> list[int]:
    return [record["line"] for record in records_of(path)]


@contextlib.contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond this size, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Two runs on one file or folder.


def test_a_second_run_on_one_output_is_refused_and_changes_nothing(
    dise: Dise, tmp_path: Path
) -> None:
    given_lines, output = prompts(tmp_path / "in"), write(tmp_path / "out", b"kept\n")
    first = LineFile(output)
    for more in ((), ("--resume",)):
        run = dise("generate", "--input", given_lines, "--output", output, *FAST, *more)
        assert (run.code, run.out, len(run.err.splitlines())) == (2, "", 1)
        assert f"another run is writing {output}: wait until it ends, or use another" in run.err
    assert output.read_bytes() == b"kept\n"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in", "out"]
    first.close()
    asked = ("generate", "--input", given_lines, "--output", output, *FAST)
    assert "exists already: --resume goes on with it" in dise(*asked).err
    assert output.read_bytes() == b"kept\n"
    assert dise(*asked, "--overwrite").code == 0
    assert numbers(output) == [1, 2, 3]


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "out"
    holding = (
        "import sys, time; from pathlib import Path; from dise_app.files.linefile import LineFile; "
        "file = LineFile(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", holding, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(InputError, match="another run is writing"):
        LineFile(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    LineFile(path).close()


def experiment() -> Sampled:
    toy = ToyPredictor()
    toy.tokenizer.encode = lambda text: np.array([ord(c) % 10 for c in text[:8]])  # type: ignore[method-assign]
    llm = LLM(toy)
    params = SamplingParams(max_tokens=4, temperature=1.0, n=2, block_length=4, seed=0)
    contenders = Contenders.of(["dise:full"], llm.catalog)
    return Sampled(llm, questions.load("countdown-short", limit=4), contenders, params, "robust")


def test_a_folder_belongs_to_one_run_until_its_report_is_written(tmp_path: Path) -> None:
    held: list[str] = []

    def report(records: list[Record]) -> None:
        with pytest.raises(InputError) as refused:
            run_experiment(experiment(), tmp_path, lambda _: None)
        held.append(str(refused.value))

    records = run_experiment(experiment(), tmp_path, lambda _: None, report)
    assert held == [
        f"another run is writing {tmp_path / 'journal.jsonl'}: wait until it ends, or use another "
        "--output"
    ]
    assert run_experiment(experiment(), tmp_path, lambda _: None) == records


# Output that is the input.


@pytest.mark.parametrize("is_link", [True, False])
def test_output_that_is_the_input_by_another_name_is_refused(
    dise: Dise, tmp_path: Path, is_link: bool
) -> None:
    lines = prompts(tmp_path / "in")
    before = lines.read_bytes()
    os.link(lines, tmp_path / "hard")
    with lines.open("rb") as file:
        name = tmp_path / "hard" if is_link else Path(f"/proc/self/fd/{file.fileno()}")
        run = dise("score", "--input", lines, "--output", name)
    assert (run.code, run.out) == (2, "")
    assert f"--input and --output are the same file {lines}" in run.err
    assert lines.read_bytes() == before


# What a resumed run finds.


def done(dise: Dise, tmp_path: Path) -> tuple[tuple[object, ...], Path]:
    """Return the arguments of a run that ended, and its output."""
    output = tmp_path / "out"
    lines = prompts(tmp_path / "in")
    args = ("generate", "--input", lines, "--output", output, *FAST, "--seed", 5, "--logprobs", 5)
    run = dise(*args)
    assert (run.code, run.err) == (0, "dise: 3 answered\n")
    return args, output


SCORE = {"score": {"scorer": "dise", "selector": "last-10"}}
LINE = {"line": 1, "model": "toy", "outputs": [SCORE], "usage": {}, "prompt": "a", "id": 0,
        "seed": 5}  # fmt: skip


def changed(**fields: Any) -> bytes:
    return encoded(LINE | fields)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"all my notes", "dise did not write line 1 of OUT, it is not JSON"),
        (b'{"my": "notes"', "dise did not write line 1 of OUT, it is cut short"),
        (b"[" * 100_000 + b"\n", "it is nested deeper than 64 lists and objects"),
        (changed(outputs=[{"score": 1}]), "it has no valid 'outputs.0.score'"),
        (
            changed(model="other"),
            "holds a run with model='other', and this run has model='toy'. Use another --output",
        ),
        (changed(seed=6), "a run with seed=6, and this run has seed=5"),
        (changed(prompt="b"), "answers another line 1 than --input holds, see its 'prompt'"),
        (changed(line=9), "answers another line 9 than --input holds"),
        (changed() + b"# my notes", "dise did not write line 2 of OUT"),
    ],
)
def test_a_file_of_others_is_refused_before_a_byte_is_lost(
    dise: Dise, tmp_path: Path, content: bytes, told: str
) -> None:
    output, lines = write(tmp_path / "out", content), prompts(tmp_path / "in")
    args = ("generate", "--input", lines, "--output", output, *FAST, "--seed", 5)
    run = dise(*args, "--resume")
    assert (run.code, run.out, len(run.err.splitlines())) == (2, "", 1)
    assert told.replace("OUT", str(output)) in run.err
    assert output.read_bytes() == content


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--temperature", 0.5), "a run with temperature=0.0, and this run has temperature=0.5"),
        (("--dtype", "bfloat16"), "dtype='auto', and this run has dtype='bfloat16'"),
    ],
)
def test_other_settings_are_refused_before_a_byte_is_lost(
    dise: Dise, tmp_path: Path, more: tuple[object, ...], told: str
) -> None:
    args, output = done(dise, tmp_path)
    write(output, output.read_bytes()[:-9])
    before = output.read_bytes()
    run = dise(*args, "--resume", *more)
    assert (run.code, output.read_bytes()) == (2, before)
    assert told in run.err
    torn = write(output, before[:20]).read_bytes()
    assert (dise(*args, "--resume", *more).code, output.read_bytes()) == (2, torn)
    assert dise(*args, "--resume", "--max-num-seqs", 2).code == 0
    assert numbers(output) == [1, 2, 3]


def test_a_line_without_its_end_is_kept_and_a_torn_one_is_written_again(
    dise: Dise, tmp_path: Path
) -> None:
    args, output = done(dise, tmp_path)
    straight, whole = answers_of(output), output.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for cut in (ends[0] - 1, ends[1] - 1, ends[0] + 1, ends[1] + 9, ends[2] - 2, 1, 9):
        write(output, whole[:cut])
        assert dise(*args, "--resume").code == 0
        assert answers_of(output) == straight
        kept = max([0, *(end for end in ends if end - 1 <= cut)])
        assert output.read_bytes()[:kept] == whole[:kept]


@pytest.mark.parametrize(
    ("verb", "line", "less"),
    [
        (("generate", *FAST), {"prompt_ids": [1]}, None),
        (("score",), {"prompt": "a", "response": "b", "id": None}, {"response": "b"}),
        (("rank",), {"prompt": "a", "candidates": ["b", "c"], "mine": 1},
         {"prompt": "a", "candidates": ["b", "c"]}),
        (("fill", "--max-tokens", 3), {"prefix": "a", "suffix": "b"}, {"prefix": "a"}),
        (("decide", "--layout", "cloze", "--choice", "c=a,b"),
         {"input": "a", "questions": [
             {"type": "choice", "instructions": "c", "choices": ["a", "d"]}]},
         {"input": "a"}),
        (("decide", "--layout", "cloze", "--choice", "c=a,b"),
         {"input": "a", "questions": None, "error": None, "seed": "x"}, {"input": "b"}),
    ],
)  # fmt: skip
def test_a_line_that_lost_a_key_is_another_line(
    dise: Dise, tmp_path: Path, verb: tuple[str, ...], line: Record, less: Record | None
) -> None:
    lines, output = write(tmp_path / "in", line), tmp_path / "out"
    args = (verb[0], "--input", lines, "--output", output, *verb[1:])
    assert dise(*args).code == 0
    before = output.read_bytes()
    assert (dise(*args, "--resume").code, output.read_bytes()) == (0, before)
    if less is not None:
        run = dise(*args, "--resume", "--input", write(lines, less))
        assert (run.code, output.read_bytes()) == (2, before)
        assert "answers another line 1 than --input holds" in run.err


def test_a_misspelt_strategy_leaves_what_is_to_be_replaced(dise: Dise, tmp_path: Path) -> None:
    args, output = done(dise, tmp_path)
    before = output.read_bytes()
    run = dise(*args, "--overwrite", "--scorer", "nosuch")
    assert (run.code, output.read_bytes()) == (2, before)
    assert "unknown scorer 'nosuch'" in run.err


def test_failed_lines_are_tried_again(dise: Dise, tmp_path: Path) -> None:
    lines, output = tmp_path / "in", tmp_path / "out"
    args = ("generate", "--input", lines, "--output", output, *FAST)
    write(lines, {"prompt": "a"}, {"prompt": "no letter"}, {"prompt": "c"})
    assert (dise(*args).code, numbers(output)) == (1, [1, 3])
    first = output.read_bytes()
    assert (dise(*args, "--resume").code, numbers(output)) == (1, [1, 3])
    write(lines, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}, {"prompt": "d"})
    assert (dise(*args, "--resume").code, numbers(output)) == (0, [1, 3, 2, 4])
    assert output.read_bytes().startswith(first)


def test_the_file_for_the_settings_of_an_output_may_be_somebody_elses(
    dise: Dise, tmp_path: Path
) -> None:
    theirs = write(tmp_path / "out.settings.json", b"[1, 2]")
    run = dise("generate", "--input", prompts(tmp_path / "in"), "--output", tmp_path / "out", *FAST)
    assert run.code == 2
    assert f"{theirs} is for the settings of --output, and dise did not write it" in run.err
    assert theirs.read_bytes() == b"[1, 2]"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [float("nan"), "\ud800"])
def test_a_record_that_json_cannot_hold_is_named_and_not_written(
    tmp_path: Path, value: object
) -> None:
    journal = Journal(tmp_path / "journal.jsonl", {"model": "m"})
    before = journal.path.read_bytes()
    with pytest.raises(DiseError, match="the record of a-1 holds"):
        journal.add({"id": "a-1", "value": value})
    journal.close()
    assert journal.path.read_bytes() == before


# What a run of another version left.


SHARDS = ("generate", *FAST, "--seed", 5, "--shard", "2/2")


def without(settings: Any, name: str) -> Any:
    """Return settings as an older version wrote them, which lacked that option."""
    return {key: value for key, value in settings.items() if key != name}


def with_settings(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the settings beside an output, or in a folder of shards."""
    content = json.loads(path.read_bytes())
    if "made_with" in content:
        write_json(path, {"made_with": change(content["made_with"])})
        return
    write_json(path, change(content))


@pytest.mark.parametrize(
    ("verb", "line", "num_options"),
    [
        (("generate", *FAST, "--seed", 5), {"prompt": "abc"}, 36),
        (("score",), {"prompt": "a", "response": "bc"}, 15),
        (("decide", "--layout", "cloze"), {"input": "a", "questions": [
            {"type": "choice", "instructions": "c", "choices": ["a", "b"]}]}, 12),
        (SHARDS, {"prompt": "abc"}, 36),
    ],
    ids=["generate", "score", "decide", "shards"],
)  # fmt: skip
def test_a_run_of_an_older_version_goes_on_whichever_option_its_settings_lack(
    dise: Dise, tmp_path: Path, verb: tuple[object, ...], line: Record, num_options: int
) -> None:
    """An option at its default may be missing; one that is missing was at its default."""
    output, lines = tmp_path / "out", write(tmp_path / "in", *[line] * 4)
    args = (verb[0], "--input", lines, "--output", output, *verb[1:])
    assert dise(*args).code == 0
    is_folder = output.is_dir()
    settings = output / "dise-run.json" if is_folder else tmp_path / "out.settings.json"
    [part] = output.glob("generate-00002-of-00002.jsonl") if is_folder else [output]
    before, whole = settings.read_bytes(), part.read_bytes()
    made = json.loads(before) if is_folder else json.loads(before)["made_with"]
    facts = {"command", "model", "fingerprint", "num_shards", "ending", "input", "input_digest"}
    given = {"max_tokens", "block_length", "seed", "layout"}
    given = {name for name in given & made.keys() if f"--{name.replace('_', '-')}" in verb}
    options = made.keys() - facts - given
    assert len(options) >= num_options
    for name in options:
        with_settings(settings, lambda run, name=name: without(run, name))
        if is_folder:
            part.unlink()
        else:
            write(part, whole[: whole.rindex(b"\n", 0, -1) + 1])
        run = dise(*args, "--resume")
        assert run.code == 0, (name, run.err)
        assert timeless(part.read_bytes()) == timeless(whole)
        settings.write_bytes(before)
    for name in given:
        with_settings(settings, lambda run, name=name: without(run, name))
        run = dise(*args, "--resume")
        assert (run.code, f"holds a run with {name}=" in run.err) == (2, True)
        settings.write_bytes(before)
    with_settings(settings, lambda run: {**run, "lookahead": 3})
    run = dise(*args, "--resume")
    assert (run.code, len(run.err.splitlines())) == (2, 1)
    assert "with lookahead=3, and this run has no such setting: another version of dise" in run.err
    settings.write_bytes(before)
    with_settings(settings, lambda run: without(run, "model"))
    assert "that does not say its model, and this run has model='" in dise(*args, "--resume").err


GONE: Record = {"early_exit": None, "eps": None, "logits_settings": {}, "tempered_confidence": None}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (GONE, None),
        (GONE | {"early_exit": 0.9}, "early_exit=0.9, and this run has no such setting"),
        (GONE | {"tempered_confidence": False}, "tempered_confidence=False, and this run has no"),
        ({"unmasking_settings": {"tempered_confidence": False}}, "unmasking_settings"),
        ({"unmasking_settings": {"eps": None}}, "unmasking_settings"),
    ],
)
def test_an_older_run_goes_on_where_options_that_are_gone_were_at_their_defaults(
    dise: Dise, tmp_path: Path, written: Record, problem: str | None
) -> None:
    output, lines = tmp_path / "out", write(tmp_path / "in", {"prompt": "abc"})
    args = ("generate", "--input", lines, "--output", output, *FAST, "--seed", 5)
    assert dise(*args).code == 0
    with_settings(tmp_path / "out.settings.json", lambda run: {**run, **written})
    run = dise(*args, "--resume")
    assert (run.code, problem is None or problem in run.err) == (0 if problem is None else 2, True)


def timeless(content: bytes) -> list[Record]:
    records = [json.loads(line) for line in content.splitlines()]
    return [r | {"usage": r["usage"] | {"seconds": 0}} for r in records]


# What the lines hold.


def test_a_line_of_two_gigabytes_is_named_and_never_in_memory(dise: Dise, tmp_path: Path) -> None:
    lines = write(tmp_path / "in", {"prompt": "a"})
    os.truncate(lines, 2**31)
    with lines.open("ab") as file:
        file.write(b"\n" + encoded({"prompt": "b"}))
    with bounded(seconds=60, gigabytes=0.2):
        run = dise("generate", "--input", lines, "--output", tmp_path / "out", *FAST)
    assert (run.code, numbers(tmp_path / "out")) == (1, [1, 3])
    failed = "dise: line 2: is longer than 16777216 bytes\n"
    assert run.err == f"{failed}dise: 2 answered, 1 failed\n"


# What is no file.


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


RECIPE = {"model": "countdown", "dataset": "./data.jsonl", "sampling": {"max_tokens": 4},
          "published": {"percent": 50, "questions": 1, "source": "a table"}}  # fmt: skip
READERS = {
    "recipe.json": "eval --recipe recipe.json --output new",
    "data.jsonl": "eval --recipe sound.json --output new",
    "ways.json": "eval compare ways.json --output new",
    "rows.json": "eval uncertainty --dataset countdown-short --data rows.json --output new",
    "own.jsonl": "eval uncertainty --dataset ./own.jsonl --grader text --output new",
    "run/journal.jsonl": "eval uncertainty --dataset countdown-short --limit 1 --output run",
    "run/journal.jsonl ": "calibrate run --output new.json",
    "schema.json": "generate a --schema schema.json",
    "questions.json": "decide a --questions questions.json",
    "calibration.json": "score --response a --calibration calibration.json",
    "out.settings.json": "generate --input in --output out --resume",
    "shards/dise-run.json": "score --input in --output shards --shard 1/1 --resume",
    "shards/dise-run.json ": "score --input in --output shards --resume",
    "model/config.json": "score --response a --model ./model",
    "whole/tokenizer.json": "score --response a --model ./whole",
    "whole/model.safetensors": "score --response a --model ./whole",
    "model/adapter_config.json": "score --response a --lora model --model ./countdown",
}


@pytest.mark.parametrize("make", [fifo, device])
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_and_not_waited_for(
    name: str, make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for folder in ("run", "shards", "model"):
        (tmp_path / folder).mkdir()
    (tmp_path / "countdown").symlink_to(CountdownPredictor.folder())
    shutil.copytree(CountdownPredictor.folder(), tmp_path / "whole")
    write(tmp_path / "sound.json", RECIPE)
    write(tmp_path / "in", {"prompt": "a", "response": "b"})
    write(tmp_path / "out", LINE)
    make(tmp_path / name.strip())
    with bounded(seconds=20, gigabytes=1):
        run = commands(monkeypatch, capsys)(*READERS[name].split())
    assert (run.code in (1, 2), len(run.err.splitlines())) == (True, 1), run.err
    told = {"out.settings.json": "dise did not write it"}
    if make is device:
        told["data.jsonl"] = "do not lie in the folder"
    assert told.get(name, "a pipe, a device or a socket, and no file") in run.err


def test_a_shard_or_an_older_versions_manifest_that_is_a_pipe_is_not_waited_for(
    dise: Dise, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    args = ("generate", "--input", prompts(tmp_path / "in"), "--output", output, *FAST)
    args = (*args, "--seed", 5, "--shard", "1/1")
    assert dise(*args).code == 0
    [shard] = output.glob("*.jsonl")
    before = shard.read_bytes()
    for path in (shard, shard.with_name(f"{shard.name}.manifest.json")):
        fifo(path)
        assert dise(*args, "--resume").code == 0
        assert shard.read_bytes() == before


# A full disk.


def test_a_full_disk_leaves_whole_lines_to_go_on_from(dise: Dise, tmp_path: Path) -> None:
    args, output = done(dise, tmp_path)
    straight = answers_of(output)
    lines = output.read_bytes().splitlines(keepends=True)
    with room_for(len(lines[0]) + 100):
        run = dise(*args, "--overwrite")
    assert (run.code, run.out, len(run.err.splitlines())) == (1, "", 1)
    assert f"cannot write {output}: File too large; the lines before are whole" in run.err
    assert answers_of(output) == straight[:1]
    assert dise(*args, "--resume").code == 0
    assert answers_of(output) == straight


ON_TOY = """
import sys
from dise_app.cli import answer
from dise_app.cli.main import main
from dise_core import LLM
from dise_core.testing import ToyPredictor
answer.opened = lambda *_: LLM(ToyPredictor())
main()
"""


@pytest.mark.parametrize("words", [["generate", ""], ["nonsense"]])
def test_bad_usage_keeps_its_code_where_its_message_finds_no_room(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "dise", *words]
        ended = subprocess.run(command, stderr=full, timeout=120, check=False)
    assert ended.returncode == 2


def test_what_standard_output_does_not_take_is_told_once() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", ON_TOY, "score", "--input", "-"],
            input=json.dumps({"response": "abc"}),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={name: each for name, each in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert ended.returncode == 1
    [told] = ended.stderr.splitlines()
    assert "No space left on device" in told


def test_a_full_disk_leaves_a_journal_and_reports_as_they_were(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", {"model": "m"})
    journal.add({"id": "a", "text": "x" * 100})
    whole = journal.path.read_bytes()
    write_json(tmp_path / "results.json", {"figures": 1})
    with room_for(len(whole) + 50):
        with pytest.raises(DiseError, match="the lines before are whole"):
            journal.add({"id": "b", "text": "y" * 100})
        with pytest.raises(DiseError, match=r"cannot write .*results\.json: File too large"):
            write_json(tmp_path / "results.json", {"figures": "2" * 1000})
    journal.close()
    assert journal.path.read_bytes() == whole
    assert json.loads((tmp_path / "results.json").read_text()) == {"figures": 1}
    assert len(list(tmp_path.iterdir())) == 2
