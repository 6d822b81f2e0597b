"""Which of two sentences a masked language model prefers: BLiMP's pairs by phenomenon, and pairs
of which one has an absurd word. Writes report.md and a picture.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dise import LLM, DiseError, InputError, ScoringParams
from dise_adapters import architectures, hub
from dise_app.files.texts import write_text
from dise_eval.reports.forest import Forest, draw
from dise_eval.reports.table import Cell, FigureTable
from dise_eval.statistics.resampling import mean

Pair = Mapping[str, str]
"""A line of BLiMP: sentence_good, sentence_bad, linguistics_term and UID, its paradigm."""

Values = npt.NDArray[np.float64]

PAIRS = Path(__file__).with_name("pairs")
ABSURD, BLIMP = "absurd word", "all of BLiMP"

SCORERS: Mapping[str, ScoringParams] = {
    name: ScoringParams(scorer=scorer, scorer_settings=settings, selector="full", logprobs=None)
    for name, scorer, settings in (
        ("dise", "dise", {}),
        ("shadow", "shadow", {}),
        ("pll", "interleaved", {"k": 10_000}),
        ("within word", "interleaved", {"k": 10_000, "within_word": True}),
    )
}
"""By the names that the report explains."""


def main() -> None:
    """Write the report that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a masked language model: a folder, or a name on the hub")
    parser.add_argument("--data", type=Path, default=PAIRS / "blimp.jsonl", help="BLiMP's files")
    parser.add_argument("--pairs", type=int, default=20, help="of each paradigm, the first")
    parser.add_argument("--output", type=Path, required=True, help="a folder")
    args = parser.parse_args()
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        write_report(args.model, args.data, args.pairs, args.output)
    except DiseError as error:
        parser.exit(1, f"{error}\n")


def write_report(model: str, data: Path, num_pairs: int, output: Path) -> None:
    """Write report.md and english.png. data: of BLiMP; num_pairs: of each of its paradigms."""
    pairs = [*first(pairs_of(data), num_pairs), *pairs_of(PAIRS / "absurd.jsonl")]
    llm, terms = LLM(model), np.array([term_of(pair) for pair in pairs])
    sums, means = {}, {}
    for name, params in SCORERS.items():
        sums[name], means[name] = preferred(llm, pairs, params)
    groups = {term: terms == term for term in sorted({*terms} - {ABSURD})}
    groups |= {BLIMP: terms != ABSURD, ABSURD: terms == ABSURD}
    shares = [
        {"phenomenon": term, "scorer": name, "share": mean(values[group])}
        for term, group in groups.items()
        for name, values in sums.items()
    ]
    both = [row for row in shares if row["scorer"] in ("dise", "pll")]
    picture = Forest(
        "english",
        FigureTable(("phenomenon", "scorer"), both),
        "share",
        "pairs of which the right sentence scores higher",
        guide=0.5,
    )
    draw(picture, output)
    parts = (
        "# Which of two sentences is English",
        f"{described(model)} {groups[BLIMP].sum():,} pairs of "
        "[BLiMP](https://github.com/alexwarstadt/blimp) (Warstadt et al. 2020, CC BY 4.0), the "
        f"first {num_pairs} of each paradigm, and {groups[ABSURD].sum()} sentences with their "
        "copies in which one word is absurd. Shares of pairs whose right sentence scores higher, "
        "by the sum of log-probabilities: 0.5 is chance. In brackets 95 % intervals over pairs.",
        "`dise` reads a sentence as it stands. The others hide each token: `shadow` all in one "
        "pass, `pll` each in its own, `within word` with the later pieces of its word.",
        wide(groups, sums).markdown(),
        "Paired differences from `dise`:",
        differences(groups, sums).markdown(),
        "By the mean a token in place of the sum:",
        wide({term: groups[term] for term in (BLIMP, ABSURD)}, means).markdown(),
        f"![{picture.title}]({picture.name}.png)",
    )
    write_text(output / "report.md", "\n\n".join(parts) + "\n")


def pairs_of(data: Path) -> Iterator[Pair]:
    """Yield the pairs of a file of JSON lines, or of all in a folder, as BLiMP has them."""
    files = sorted(data.glob("*.jsonl")) if data.is_dir() else [data]
    if not files or not all(file.is_file() for file in files):
        raise InputError(f"--data {data} has no .jsonl file: name BLiMP's data folder.", "data")
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def first(pairs: Iterator[Pair], number: int) -> list[Pair]:
    """Return that many of each paradigm's pairs, the first."""
    seen: Counter[str] = Counter()
    return [pair for pair in pairs if seen.update([pair["UID"]]) or seen[pair["UID"]] <= number]


def term_of(pair: Pair) -> str:
    """Return a pair's phenomenon, one of the paper's twelve, or the absurd word."""
    term = pair["linguistics_term"].replace("_", " ")
    return "argument structure" if term == "s-selection" else term


def preferred(llm: LLM, pairs: Sequence[Pair], params: ScoringParams) -> tuple[Values, Values]:
    """Return of each pair 1 if the right sentence scores higher, 0 if the other does and 0.5
    for two alike, by the sum and by the mean of the log-probabilities, [P] each.
    """
    sentences = [pair[name] for pair in pairs for name in ("sentence_good", "sentence_bad")]
    scores = [
        answer.outputs[0].score for answer in llm.score([""] * len(sentences), sentences, params)
    ]
    means = np.array([score.value for score in scores])
    sums = means * [score.num_positions for score in scores]
    by_sum, by_mean = (np.heaviside(each[::2] - each[1::2], 0.5) for each in (sums, means))
    return by_sum, by_mean


def described(model: str) -> str:
    """Return the sentence that says which model this is, and how large."""
    fields = hub.config_if_any(model) or {}
    layers, width = (fields.get(name, "?") for name in ("num_hidden_layers", "hidden_size"))
    return f"Model: {' '.join(architectures(fields))}, {layers} layers, {width} wide."


def wide(groups: Mapping[str, Values], chosen: Mapping[str, Values]) -> FigureTable:
    """Return the shares, a row a phenomenon and a column a scorer."""
    rows: list[dict[str, Cell]] = [
        {
            "phenomenon": term,
            "pairs": int(group.sum()),
            **{name: mean(values[group]) for name, values in chosen.items()},
        }
        for term, group in groups.items()
    ]
    return FigureTable(("phenomenon",), rows)


def differences(groups: Mapping[str, Values], chosen: Mapping[str, Values]) -> FigureTable:
    """Return how much more often than `dise` each other scorer is right."""
    rows: list[dict[str, Cell]] = [
        {
            "phenomenon": term,
            **{
                name: mean((values - chosen["dise"])[groups[term]], is_difference=True)
                for name, values in chosen.items()
                if name != "dise"
            },
        }
        for term in (BLIMP, ABSURD)
    ]
    return FigureTable(("phenomenon",), rows)


if __name__ == "__main__":
    main()
