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
    assert (
        0 < int(settings["GOMP_SPINCOUNT"]) < 300_000
    )  # libgomp's own, for threads that have a core each


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


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        (
            "0::/a/b\n",
            {
                "cpu.max": "400000 100000\n",
                "a/cpu.max": "50000 100000\n",
                "a/b/cpu.max": "max 100000\n",
            },
            0.5,
        ),
        ("0::/docker/of-the-host\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/../elsewhere\n", {"cpu.max": "200000 100000\n"}, 2.0),
        (
            "3:cpuset:/\n1:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        (
            "5:cpu,cpuacct:/a\n0::/\n",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "300000\n",
                "cpu,cpuacct/a/cpu.cfs_period_us": "200000\n",
            },
            1.5,
        ),
    ],
)
def test_the_quota_is_the_smallest_of_all_groups_above(
    tmp_path: Path, own: str, files: Mapping[str, str], quota: float | None
) -> None:
    assert groups(tmp_path, own, files) == quota


def test_where_there_are_no_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "missing") is None


def in_a_process(code: str, **environment: str) -> dict[str, object]:
    """Run code that prints JSON, in an environment that says nothing of threads but what
    is given.
    """
    silent = {
        name: value
        for name, value in os.environ.items()
        if name not in (*WAIT_VARIABLES, *COUNT_VARIABLES)
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=silent | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


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


@pytest.mark.parametrize("package", ["dise", "dise_core"])
def test_a_program_that_imports_torch_after_dise_waits_briefly_and_keeps_its_threads(
    package: str,
) -> None:
    code = f"from {package} import LLM; import torch; torch.set_num_threads(7); LLM('countdown');"
    seen = in_a_process(OPENMP + code + "report()")
    expected = thread_settings({}, 1, None)["GOMP_SPINCOUNT"]
    assert (seen["GOMP_SPINCOUNT"], seen["threads"]) == (expected, 7)
    assert (
        in_a_process(OPENMP + code + "report()", OMP_WAIT_POLICY="ACTIVE")["GOMP_SPINCOUNT"] == ""
    )


def test_llm_chooses_before_it_loads_a_model() -> None:
    seen = in_a_process(OPENMP + "from dise_core import LLM; LLM('countdown'); report()")
    assert seen["GOMP_SPINCOUNT"] == thread_settings({}, 1, None)["GOMP_SPINCOUNT"]


def test_a_program_that_has_imported_torch_keeps_its_environment_and_its_threads() -> None:
    code = (
        OPENMP
        + "import torch; torch.set_num_threads(7); from dise_core import LLM; LLM('countdown'); "
        + "report()"
    )
    assert in_a_process(code) == {"GOMP_SPINCOUNT": "", "OMP_NUM_THREADS": "", "threads": 7}


def test_a_users_settings_reach_torch_unchanged() -> None:
    code = (
        OPENMP
        + "from dise_core import LLM; from dise_core.testing import ToyPredictor; "
        + "LLM(ToyPredictor()); report()"
    )
    seen = in_a_process(code, OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="1")
    assert seen == {"GOMP_SPINCOUNT": "", "OMP_NUM_THREADS": "1", "threads": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the libraries that Linux has mapped")
def test_the_choice_reaches_openmp_itself() -> None:
    """libgomp says what it has read: at its import, after Python has set the variable."""
    code = """
import subprocess, sys
from dise_core.threads import choose_threads
choose_threads()
import torch
"""
    silent = {
        name: value
        for name, value in os.environ.items()
        if name not in (*WAIT_VARIABLES, *COUNT_VARIABLES)
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=silent | {"OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
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
