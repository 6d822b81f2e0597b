"""Whether two versions of this software write the same tokens and give the same scores.

python benchmarks/same_answers.py before.json
python benchmarks/same_answers.py after.json --against before.json

The first run writes down what this version answers, the second compares another one with it, bit by
bit, and exits with 1 where they differ: 256 Countdown problems with the embedded model in every
mode of writing, and the answers to them by every scorer. Both runs must be on one machine, as
rounding differs between processors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command import Parser, head, row

from dise_core import LLM, SamplingParams, ScoringParams
from dise_eval.datasets import questions

WRITING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 0.7, top-p 0.9, top-k 5": {"temperature": 0.7, "top_p": 0.9, "top_k": 5},
    "Dream's sampler": {
        "unmasking": "entropy", "steps": 24, "eps": 1e-3, "temperature": 0.2, "top_p": 0.95,
        "tempered_confidence": True, "block_length": 48,
    },
    "guidance": {"cfg_scale": 0.5},
    "cache prefix": {"cache": "prefix"},
    "cache dual": {"cache": "dual"},
    "early exit": {"early_exit": 0.9},
    **{
        f"unmasking {name}": {"unmasking": name}
        for name in ("entropy", "factor", "margin", "origin", "random", "threshold")
    },
    "dise-flexible": {"length": "dise-flexible", "max_tokens": 32},
    "dise-flexible, cache dual": {"length": "dise-flexible", "max_tokens": 32, "cache": "dual"},
    "daedal": {"length": "daedal", "max_tokens": 32},
    "best of 5": {"temperature": 0.7, "n": 5},
}  # fmt: skip

SCORING: dict[str, dict[str, Any]] = {
    "dise": {},
    "dise over all": {"selector": "full"},
    "dise over the first block and the prompt's end": {"selector": "first-block+prompt-last-2"},
    "interleaved": {"scorer": "interleaved"},
    "mc": {"scorer": "mc", "scorer_settings": {"num_samples": 8}},
    "mc-llada": {"scorer": "mc-llada", "scorer_settings": {"num_samples": 8}},
    "mc-dream": {"scorer": "mc-dream", "scorer_settings": {"num_samples": 8}},
}


def answers(num_problems: int, judge: str | None = None) -> Iterator[tuple[str, list[Any], float]]:
    """Yield each mode, the token ids and scores of its answers, and the seconds it took."""
    llm = LLM("countdown", judge=judge)
    prompts = [item.prompt for item in questions.load("countdown-short", limit=num_problems).items]
    texts: list[tuple[int, ...]] = []
    for name, settings in WRITING.items():
        params = SamplingParams(**{"max_tokens": 48, "block_length": 16, "seed": 0, **settings})
        started = time.perf_counter()
        written = llm.generate(prompts, params)
        found = [[o.index, o.token_ids, o.score.value.hex()] for a in written for o in a.outputs]
        texts = texts or [answer.outputs[0].token_ids for answer in written]
        yield name, found, time.perf_counter() - started
    judged: dict[str, dict[str, Any]] = {"ar-perplexity": {"scorer": "ar-perplexity"}}
    for name, settings in (SCORING | (judged if judge else {})).items():
        started = time.perf_counter()
        scored = llm.score(prompts, texts, ScoringParams(block_length=16, **settings))
        yield name, [a.outputs[0].score.value.hex() for a in scored], time.perf_counter() - started


def main() -> int:
    """Write the answers down, and compare them where that is asked for."""
    parser = Parser(__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--judge", help="the model of ar-perplexity, which is left out without one")
    args = parser.options(problems=2)
    before = json.loads(args.against.read_text(encoding="utf-8")) if args.against else None
    now: dict[str, list[Any]] = {}
    num_differing = 0
    head("mode", "seconds", "differing")
    for name, found, seconds in answers(args.problems, args.judge):
        now[name] = json.loads(json.dumps(found))
        verdict = ""
        if before is not None:
            pairs = list(zip(before[name], now[name], strict=True))
            differing = sum(one != other for one, other in pairs)
            num_differing += differing
            verdict = f"{differing} of {len(pairs)}"
        row(name, f"{seconds:.2f}", verdict)
    args.output.write_text(json.dumps(now), encoding="utf-8")
    return 1 if num_differing else 0


if __name__ == "__main__":
    sys.exit(main())
