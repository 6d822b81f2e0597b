"""Shards on Ray: workers that die, a shard that kills them, and a driver that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dise_app.cli.answer import load
from dise_app.files.runner import Work
from dise_cluster.rows import input_files
from dise_cluster.shard import ShardJob
from dise_core import LLM, DiseError, InputError, Plan, RequestOutput, SamplingParams
from dise_core.front.planner import Planner
from dise_core.records import JsonFields
from tests.cluster.corpora import WRITE, answers, corpus, in_shards
from tests.commands import Dise

pytest.importorskip("ray")

ATTEMPTS = 3
PARAMS = SamplingParams(max_tokens=8, block_length=8, temperature=0.9, seed=5)


def plan_of(planner: Planner, row: JsonFields, params: SamplingParams) -> Plan[RequestOutput]:
    return planner.generate(str(row["prompt"]), params)


def killing(
    planner: Planner, row: JsonFields, params: SamplingParams, times: int, marks: Path
) -> Plan[RequestOutput]:
    """Kill the process at the row r3, this many times."""
    if row["id"] == "r3" and len(list(marks.iterdir())) < times:
        (marks / f"{len(list(marks.iterdir()))}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return plan_of(planner, row, params)


def fail() -> LLM:
    raise DiseError("no model today")


def settings(_: LLM) -> JsonFields:
    return {"command": "generate"}


def job_of(tmp_path: Path) -> ShardJob[SamplingParams]:
    source = corpus(tmp_path / "in")
    loaded = partial(load, {"model": "countdown"}, {})
    work = Work("generate", {}, PARAMS, loaded, plan_of, settings, {})
    return ShardJob(work, tuple(input_files(source)), tmp_path / "out", 4)


def made(job: ShardJob[SamplingParams]) -> list[int]:
    from dise_cluster.on_ray import made_on_ray

    shards = made_on_ray(job, [1, 2, 3, 4], "auto", 1, lambda _: None)
    return sorted(shard.index for shard in shards)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(("times", "expected"), [(1, [1, 2, 3, 4]), (99, [1, 2, 3])])
def test_another_worker_follows_a_dead_one_but_a_shard_that_kills_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: int, expected: list[int]
) -> None:
    job, marks = job_of(tmp_path), tmp_path / "marks"
    marks.mkdir()
    deadly = replace(job.work, plan_of=partial(killing, times=times, marks=marks))
    assert made(replace(job, work=deadly)) == expected
    assert len(list(marks.iterdir())) == min(times, ATTEMPTS)
    assert ("dise: shard 4 is given up" in capsys.readouterr().err) == (times > 1)
    if times == 1:
        assert len(answers(job.folder)) == 12


@pytest.mark.usefixtures("ray_here")
def test_a_run_ends_where_nothing_but_failures_comes_and_at_a_wrong_option(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    failing = replace(job, work=replace(job.work, load=fail))
    with pytest.raises(DiseError, match="no model today; --resume goes on where this ended"):
        made(failing)
    wrong = replace(job.work, params=SamplingParams(scorer="nope", seed=1))
    with pytest.raises(InputError, match="unknown scorer 'nope'"):
        made(replace(job, work=wrong))


@pytest.mark.usefixtures("ray_here")
def test_a_killed_driver_goes_on(dise: Dise, tmp_path: Path) -> None:
    import ray

    source, output = corpus(tmp_path / "in", 200), tmp_path / "out"
    words = ("generate", "--input", source, *WRITE)
    assert in_shards(dise, 20, *words, "--output", tmp_path / "whole").code == 0
    assert dise(*words, "--output", output, "--shard", "7/20").code == 0
    address = ray.get_runtime_context().gcs_address
    more = ("--output", output, "--resume", "--ray", address, "--workers", 2)
    command = [sys.executable, "-m", "dise", *map(str, (*words, *more))]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while driver.poll() is None and len(list(output.glob("*.jsonl"))) < 2:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    assert len(list(output.glob("*.jsonl"))) < 20
    ended = subprocess.run(command, capture_output=True, timeout=280, text=True, check=False)
    assert (ended.returncode, "200 rows, in 20 of 20 shards" in ended.stderr) == (0, True), ended
    assert answers(output) == answers(tmp_path / "whole")
