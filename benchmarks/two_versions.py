"""How fast two versions of this software are, beside each other on one machine.

python benchmarks/two_versions.py BEFORE [AFTER] [--rounds 9] [--only NAME ...]

BEFORE and AFTER are source trees, of a `git worktree` for example; AFTER is this one unless it is
named. Each job stands for one of the benchmarks here. A process of each version does the same job
in turn, on one thread, and what counts is the processor time: so a machine's moods hit both alike.
Every five rounds both begin anew, as one process may be 5 % faster than the next of the same code.
Prints the median of both, and the median and the quartiles of the ratios round by round.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from command import Parser, Worker, head, row, server

ROUNDS = 5
"""In the life of one process."""


class Jobs:
    """The jobs, run by the version that Python finds in this process."""

    def __init__(self, folder: Path) -> None:
        import numpy as np

        from dise_core import LLM, SamplingParams, ScoringParams

        self.folder = folder
        self.llm = LLM("countdown")
        numbers = np.random.default_rng(0)
        triples = numbers.integers(10, 60, (64, 3))
        self.prompts = [f"{a},{b},{c} -> {abs(a + b - c)}" for a, b, c in triples]
        self.sampling, self.scoring = SamplingParams, ScoringParams
        self.long_text = numbers.integers(0, 8190, 1024).tolist()
        self.texts = [numbers.integers(0, 8190, n).tolist() for n in range(48, 80)]
        self.reads: list[tuple[Any, Any]] = []
        self.exits = ExitStack()
        self.server: Any = None
        self.address = ""

    @property
    def _writing(self) -> Any:
        return self.sampling(max_tokens=48, block_length=16, seed=0)

    @cached_property
    def _random_llm(self) -> Any:
        from random_checkpoints import dense, write

        from dise_core import LLM

        return LLM(str(write(self.folder, dense(8192, 384, 6))))

    @cached_property
    def _answers(self) -> list[Any]:
        answers = self.llm.generate(self.prompts, self._writing)
        return [answer.outputs[0].token_ids for answer in answers]

    def against_naive_scoring(self) -> None:
        """Score 32 texts under a random model of 10 million parameters."""
        self._random_llm.score([[]] * len(self.texts), self.texts, self.scoring(selector="full"))

    def against_naive_decoding(self) -> None:
        """Write 32 answers."""
        self.llm.generate(self.prompts[:32], self._writing)

    def monte_carlo(self) -> None:
        """Score 16 answers by 32 samples each."""
        settings = self.scoring(scorer="mc", scorer_settings={"num_samples": 32})
        self.llm.score(self.prompts[:16], self._answers[:16], settings)

    def cache(self) -> None:
        """Write 64 answers with the dual cache."""
        settings = self._writing.model_copy(update={"cache": "dual"})
        self.llm.generate(self.prompts, settings)

    def engine_bookkeeping(self) -> None:
        """Write 64 answers without the model, whose answers of an earlier run are given again."""
        predictor = self.llm.predictor
        real = predictor.read
        if not self.reads:
            predictor.read = lambda reads: self._recorded(real, reads)
            self.llm.generate(self.prompts, self._writing)
        for _ in range(3):
            answers = iter(self.reads)
            predictor.read = lambda _, answers=answers: next(answers)[1]
            self.llm.generate(self.prompts, self._writing)
        predictor.read = real

    def _recorded(self, real: Callable[[Any], Any], reads: Any) -> Any:
        self.reads.append((reads, real(reads)))
        return self.reads[-1][1]

    def scaling_requests(self) -> None:
        """Write one answer alone."""
        self.llm.generate(self.prompts[:1], self._writing)

    def scaling_lengths(self) -> None:
        """Score one text of 1,024 tokens."""
        self._random_llm.score([[]], [self.long_text], self.scoring(selector="full"))

    def serving(self) -> None:
        """Ask `dise serve` for 64 answers, 16 at once."""
        import httpx

        with httpx.Client(base_url=self._served(), timeout=300) as client:

            def ask(prompt: str) -> None:
                body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 16}
                client.post("/v1/chat/completions", json=body).raise_for_status()

            with ThreadPoolExecutor(16) as pool:
                list(pool.map(ask, self.prompts))

    def _served(self) -> str:
        if self.server is None:
            self.address, self.server = self.exits.enter_context(server())
        return self.address

    def seconds(self, name: str) -> float:
        """Return the processor time of one job, its server's included."""
        before = self._clock()
        getattr(self, name)()
        return self._clock() - before

    def _clock(self) -> float:
        served = self.server.cpu_times() if self.server else None
        return time.process_time() + (served.user + served.system if served else 0.0)


NAMES = [name for name in vars(Jobs) if not name.startswith("_") and name != "seconds"]


def work() -> None:
    """Do the jobs that standard input names, one a line, and tell the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(Path(folder))
        with jobs.exits:
            for line in sys.stdin:
                print(f"answer {jobs.seconds(*json.loads(line))}", flush=True)


def version(tree: Path) -> Worker:
    """Return a process that works with one version's sources."""
    paths = os.pathsep.join(map(str, (tree, tree / "strategies", tree / "adapters")))
    one_thread = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return Worker(__file__, "--work", PYTHONPATH=paths, **one_thread)


def paired(name: str, trees: list[Path], rounds: int) -> list[list[float]]:
    """Return the seconds of one job before and after, a pair for each round, in processes
    of their own. Their first run, which is not counted, makes what the job needs.
    """
    versions = [version(tree) for tree in trees]
    pairs = []
    for number in range(rounds + 1):
        order = versions if number % 2 == 0 else versions[::-1]
        times = [worker.ask(name) for worker in order]
        pairs.append(times if number % 2 == 0 else times[::-1])
    for worker in versions:
        worker.close()
    return pairs[1:]


def main() -> None:
    """Print the table, a job a line."""
    parser = Parser(__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    args = parser.options(rounds=2, only=["scaling_requests"])
    trees = [args.before.resolve(), args.after.resolve()]
    head("job", "before, s", "after, s", "after / before", "quartiles")
    for name in args.only:
        pairs = []
        for start in range(0, args.rounds, ROUNDS):
            pairs += paired(name, trees, min(ROUNDS, args.rounds - start))
        ratios = [after / before for before, after in pairs]
        before, after = (statistics.median(times) for times in zip(*pairs, strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4)
        times = [f"{value:.3f}" for value in (before, after, middle)]
        row(name, *times, f"{low:.3f} to {high:.3f}")


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--work"] else main()
