"""Shards on Ray: a worker that dies, one that kills every time, and a driver that is killed."""

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
from tests.cluster.corpora import WRITE, answers, contents, corpus
from tests.commands import Dise

pytest.importorskip("ray")

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


def settings(_: LLM) -> JsonFields:
    return {"command": "generate"}


def job_of(tmp_path: Path) -> ShardJob[SamplingParams]:
    source = corpus(tmp_path / "in")
    loaded = partial(load, {"model": "countdown"}, {})
    work = Work("generate", {}, PARAMS, loaded, plan_of, settings)
    return ShardJob(work, tuple(input_files(source)), tmp_path / "out", 4)


def made(job: ShardJob[SamplingParams]) -> list[int]:
    from dise_cluster.on_ray import made_on_ray

    manifests = made_on_ray(job, [1, 2, 3, 4], "auto", 1, num_cpus=1)
    return sorted(manifest.shard for manifest in manifests)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(("times", "expected"), [(1, [1, 2, 3, 4]), (99, None)])
def test_a_dead_worker_is_started_again_but_not_for_ever(
    tmp_path: Path, times: int, expected: list[int] | None
) -> None:
    job, marks = job_of(tmp_path), tmp_path / "marks"
    marks.mkdir()
    deadly = replace(job.work, plan_of=partial(killing, times=times, marks=marks))
    dying = replace(job, work=deadly)
    if expected is not None:
        assert made(dying) == expected
        assert len(answers(job.folder)) == 12
        return
    with pytest.raises(DiseError, match="--resume goes on where this ended"):
        made(dying)
    assert len(list(marks.iterdir())) == 3  # once, and two more times
    assert made(job) == [1, 2, 3, 4]


@pytest.mark.usefixtures("ray_here")
def test_a_workers_input_error_is_the_drivers(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    other = replace(job.work, params=SamplingParams(scorer="nope", seed=1))
    with pytest.raises(InputError, match="unknown scorer 'nope'"):
        made(replace(job, work=other))


def test_a_killed_driver_goes_on(dise: Dise, tmp_path: Path) -> None:
    source, output = corpus(tmp_path / "in", 40), tmp_path / "out"
    words = ("generate", "--input", source, *WRITE, "--shards", 8)
    assert dise(*words, "--output", tmp_path / "whole").code == 0
    more = ("--output", output, "--resume", "--ray", "local", "--workers", 2)
    command = [sys.executable, "-m", "dise", *map(str, (*words, *more))]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while driver.poll() is None and not list(output.glob("*.jsonl")):
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    assert answers(output) == answers(tmp_path / "whole")
    assert set(contents(output)) == set(contents(tmp_path / "whole"))
