"""How a process's threads wait, and how many they are, is chosen before torch is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dise_core.threads import COUNT_VARIABLES, WAIT_VARIABLES, cpu_quota, num_cores, thread_settings


@pytest.mark.parametrize("variable", WAIT_VARIABLES)
def test_a_users_way_to_wait_stands_whichever_variable_says_it(variable: str) -> None:
    assert thread_settings({variable: "x"}, 8, None) == {}


def test_without_one_threads_wait_briefly() -> None:
    settings = thread_settings({}, 8, None)
    assert set(settings) == {"GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
    assert 0 < int(settings["GOMP_SPINCOUNT"]) < 300_000  # libgomp's own, with a core a thread


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(None, None), (0.5, "1"), (1.0, "1"), (1.5, "2"), (7.0, "7"), (7.5, None), (16.0, None)],
)
def test_a_quota_below_the_cores_bounds_the_threads(
    quota: float | None, expected: str | None
) -> None:
    assert thread_settings({}, 8, quota).get("OMP_NUM_THREADS") == expected


@pytest.mark.parametrize("variable", COUNT_VARIABLES)
def test_a_users_number_of_threads_stands(variable: str) -> None:
    assert "OMP_NUM_THREADS" not in thread_settings({variable: "8"}, 8, 1.0)


def groups(tmp_path: Path, own: str, files: Mapping[str, str]) -> float | None:
    (tmp_path / "own").write_text(own)
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return cpu_quota(tmp_path / "groups", tmp_path / "own")


def v2(*quotas: str) -> dict[str, str]:
    """Return the files of groups of version 2, each inside the one before."""
    return {f"{'a/b/'[: 2 * n]}cpu.max": f"{quota} 100000\n" for n, quota in enumerate(quotas)}


def v1(folder: str, quota: str, period: str) -> dict[str, str]:
    names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
    return {f"{folder}/{name}": f"{n}\n" for name, n in zip(names, (quota, period), strict=True)}


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", v2("max"), None),
        ("0::/\n", v2("150000"), 1.5),
        ("0::/a/b\n", v2("400000", "50000", "max"), 0.5),
        ("0::/docker/of-the-host\n", v2("200000"), 2.0),
        ("0::/../elsewhere\n", v2("200000"), 2.0),
        ("3:cpuset:/\n1:cpu:/\n", v1("cpu", "-1", "100000"), None),
        ("5:cpu,cpuacct:/a\n0::/\n", v1("cpu,cpuacct/a", "300000", "200000"), 1.5),
    ],
)
def test_the_quota_is_the_smallest_of_all_groups_above(
    tmp_path: Path, own: str, files: Mapping[str, str], quota: float | None
) -> None:
    assert groups(tmp_path, own, files) == quota


def in_a_process(code: str, **environment: str) -> dict[str, object]:
    """Run code that prints JSON, in an environment that says nothing of threads but what
    is given.
    """
    return dict(json.loads(process(code, **environment).stdout.splitlines()[-1]))


def process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    chosen = (*WAIT_VARIABLES, *COUNT_VARIABLES)
    silent = {name: value for name, value in os.environ.items() if name not in chosen}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=silent | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


OPENMP = """
import ctypes, json
def report():
    import torch
    get = ctypes.CDLL(None).getenv
    get.restype = ctypes.c_char_p
    names = ("GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    seen = {name: (get(name.encode()) or b"").decode() for name in names}
    print(json.dumps(seen | {"threads": torch.get_num_threads()}))
"""


TORCH = "import torch; torch.set_num_threads(7); "
LOADED = "from {} import LLM; " + TORCH + "LLM('countdown'); report()"
LATE = TORCH + "from dise_core import LLM; LLM('countdown'); report()"
TOY = "from dise_core import LLM; from dise_core.testing import ToyPredictor; LLM(ToyPredictor()); "
SPINS = thread_settings({}, 1, None)["GOMP_SPINCOUNT"]


@pytest.mark.parametrize(
    ("code", "environment", "spins", "threads"),
    [
        (LOADED.format("dise"), {}, SPINS, 7),
        (LOADED.format("dise_core"), {"OMP_WAIT_POLICY": "ACTIVE"}, "", 7),
        (TOY + "report()", {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "1"}, "", 1),
        (LATE, {}, "", 7),
    ],
)
def test_a_program_keeps_its_threads_and_its_environment_and_waits_briefly_by_default(
    code: str, environment: dict[str, str], spins: str, threads: int
) -> None:
    seen = in_a_process(OPENMP + code, **environment)
    assert (seen["GOMP_SPINCOUNT"], seen["threads"]) == (spins, threads)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the libraries that Linux has mapped")
def test_the_choice_reaches_openmp_itself() -> None:
    """libgomp says what it has read: at its import, after Python has set the variable."""
    code = "from dise_core.threads import choose_threads; choose_threads(); import torch"
    done = process(code, OMP_DISPLAY_ENV="VERBOSE")
    expected = thread_settings({}, 1, None)["GOMP_SPINCOUNT"]
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("this torch's OpenMP is not GNU's")
    assert f"GOMP_SPINCOUNT = '{expected}'" in done.stderr


def test_cores_are_those_that_the_process_may_use() -> None:
    assert 1 <= num_cores() <= (os.cpu_count() or 1)
    if sys.platform == "linux":
        code = "import json, os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        code += "from dise_core.threads import num_cores; print(json.dumps({'cores': num_cores()}))"
        assert in_a_process(code) == {"cores": 1}
