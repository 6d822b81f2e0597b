"""The sections load, sampler and scores. Each item is a file of the section's folder once it is
done, so what is ended anywhere goes on with the next one. Exit status 3: there is more to do.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from plain import PUBLISHED, PlainModel, Step, dream, llada, sdar

from dise_adapters import CheckpointPredictor, hub
from dise_core import LLM, SamplingParams, ScoringParams
from dise_eval import load as questions

Fields = dict[str, Any]

MASKING = {"scorer": "interleaved", "scorer_settings": {"k": 2}}
SCORERS: dict[str, Fields] = {"feeding": {"scorer": "dise"}, "masking": MASKING}
"""By what a plain loop does to a text."""


class Section:
    """A section of one model. One item is done, however short the time is."""

    def __init__(self, options: Fields) -> None:
        self.options, self._is_begun = options, False
        self._deadline = time.monotonic() + 60 * options["minutes"]
        self.open()
        automatic = "bfloat16" if torch.cuda.is_available() else "float32"
        self.dtype = automatic if self.llm.config.dtype == "auto" else self.llm.config.dtype
        self.info, self.architecture = self.predictor.info, self.predictor.family.architectures[0]

    def open(self) -> None:
        """Take the model as its files say; its weights wait for the first request."""
        options = {name: self.options[name] for name in ("dtype", "block_size")}
        self.llm = LLM(self.options["model"], lazy=True, **options)
        assert isinstance(self.llm.predictor, CheckpointPredictor)
        self.predictor = self.llm.predictor

    @cached_property
    def plain(self) -> PlainModel:
        """The plain model, which takes the place of ours in memory."""
        self.llm.close()
        self.open()
        return PlainModel(self.options["model"], self.predictor, self.dtype)

    def once(self, name: str, make: Callable[..., Fields], *arguments: Any) -> Fields:
        """Return an item, made now unless it is there. Raises TimeoutError."""
        file = Path(self.options["folder"], f"{name}.json")
        if not file.exists():
            if self._is_begun and time.monotonic() > self._deadline:
                raise TimeoutError(f"The time of the section is over before {name}.")
            part = file.with_suffix(".part")
            part.write_text(json.dumps(make(self, *arguments)))
            part.rename(file)
            self._is_begun = True
        found: Fields = json.loads(file.read_text())
        return found

    def each(self, name: str, make: Callable[..., Fields], items: Iterable[Any]) -> list[Fields]:
        """Return an item for each of some."""
        return [self.once(f"{name}-{number}", make, item) for number, item in enumerate(items)]


def load(section: Section) -> Fields:
    """Return the files' digests, the tokenizer's facts, the memory and the time."""
    folder = hub.fetch(section.options["model"]).folder
    files = section.each("file", digest, sorted(filter(Path.is_file, folder.iterdir())))
    return {**section.once("loaded", loading), "files": files}


def digest(_: Section, file: Path) -> Fields:
    """Return a file's name, size and digest."""
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    return {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256}


def loading(section: Section) -> Fields:
    """Return what loading the weights takes, and what the tokenizer says."""
    started = time.monotonic()
    section.llm.load()
    seconds, device = time.monotonic() - started, "cpu"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if torch.cuda.is_available():
        peak, device = torch.cuda.max_memory_allocated(), torch.cuda.get_device_name()
    tokenizer, special = section.predictor.tokenizer, section.info.special
    *_, mask, ends = PUBLISHED.get(section.architecture, (-1, set[int]()))
    is_published = special.mask_id == mask and ends <= special.eos_ids
    question = {"role": "user", "content": "12+3"}
    return {
        "summary": f"{section.architecture} in {section.dtype}: {seconds:.1f} s, "
        f"{peak / 2**30:.2f} GiB; mask and ends as published: {is_published}",
        "mask": special.mask_id,
        "ends": {end: tokenizer.token_text(end) for end in sorted(special.eos_ids)},
        "block_length": section.info.block_length,
        "ids of 12+3": tokenizer.encode("12+3").tolist(),
        "chat of 12+3": tokenizer.chat_text([question]) if tokenizer.has_chat_template else None,
        "device": device, "seconds": seconds, "peak_bytes": peak,
    }  # fmt: skip


def sampler(section: Section) -> Fields:
    """Return how far greedy answers are those of the authors' loop. Raises ValueError."""
    if section.architecture not in PUBLISHED:
        raise ValueError(
            f"There is no plain sampler for {section.architecture}: give a model of one of "
            f"{', '.join(PUBLISHED)}, or leave this section out."
        )
    name = "countdown-short" if section.options["embedded"] else "countdown"
    limit = min(20, section.options["limit"])
    prompts = (problem.prompt for problem in questions(name, limit=limit).items)
    pairs = section.each("beside", beside, section.each("answer", answered, prompts))
    gaps = [pair["first"]["gap"] for pair in pairs if pair["first"]]
    summary = f"{sum(pair['is_equal'] for pair in pairs)} of {len(pairs)} answers are the loop's"
    summary += f"; first differences at gaps of {min(gaps):.2g} to {max(gaps):.2g}" if gaps else ""
    return {"summary": summary, "prompts": pairs}


def answered(section: Section, prompt: str) -> Fields:
    """Return DiSE's answer, and what each step wrote."""
    (loop, options, *_), own = PUBLISHED[section.architecture], section.info.block_length
    total = 32 if section.options["embedded"] else 64
    block = own or (total if loop is dream else total // 2)
    options = {**options, "max_tokens": total} | ({} if own else {"block_length": block})
    options |= {"steps": total} if loop is dream else {}
    ids = section.llm.planner.prompt_ids(prompt)
    if own and loop is llada:  # which counts blocks from the prompt's end, and we from its start
        ids = ids[len(ids) % own :]
    [answer] = section.llm.generate([ids.tolist()], SamplingParams(temperature=0, **options))
    [output], start = answer.outputs, len(ids)
    assert output.writing is not None
    by_step: dict[int, list[list[int]]] = {}
    steps = output.writing.steps[start:].tolist()
    for place, (token, step) in enumerate(zip(output.token_ids, steps, strict=False), start):
        by_step.setdefault(step, []).append([place, token])
    num_masks = total - (start + total) % -block if loop is sdar else total  # whole blocks
    found = {"prompt": ids.tolist(), "response": output.token_ids, "block": block}
    return {**found, "num_masks": num_masks, "steps": [by_step[step] for step in sorted(by_step)]}


def beside(section: Section, answer: Fields) -> Fields:
    """Return whether the loop writes the same tokens, and where it first does not."""
    plain, start, response = section.plain, len(answer["prompt"]), answer["response"]
    text, stop = answer["prompt"] + [plain.mask] * answer["num_masks"], start + len(response)
    ours: Iterator[list[list[int]]] = iter(answer["steps"])
    first = None
    loop = PUBLISHED[section.architecture][0](plain, text, start, answer["block"])
    for number, step in enumerate(loop):
        for place, token in step.written(len(text)):
            text[place] = token
        theirs = step.written(stop)
        if theirs and first is None and theirs != (expected := next(ours, [])):
            first = {"step": number, **difference(step, dict(theirs), dict(expected))}  # type: ignore[arg-type]
    return {"is_equal": text[start:stop] == response, "loop": text[start:stop], "first": first}


def difference(step: Step, theirs: dict[int, int], ours: dict[int, int]) -> Fields:
    """Return the gap, in logits between two tokens or in confidence between two places."""
    for place in {*theirs} & {*ours}:
        if theirs[place] != ours[place]:
            row = step.logits[step.positions.index(place)]
            return {"of": "token", "gap": float(row[theirs[place]] - row[ours[place]])}
    sure = dict(zip(step.positions, step.confidences.tolist(), strict=True))
    others = {*ours} - {*theirs} or {*theirs} - {*ours}
    gap = min(sure[place] for place in theirs) - max(sure.get(place, -1e9) for place in others)
    return {"of": "place", "gap": gap}


def scores(section: Section) -> Fields:
    """Return the largest difference of two scorers from plain loops, over five texts."""
    texts = section.each("text", scored, questions("countdown-choice", limit=5).items)
    plain = section.each("plain", plain_scores, texts)
    pairs = [(text["dise"], loop) for text, loop in zip(texts, plain, strict=True)]
    largest = max(abs(ours[how] - loop[how]) for ours, loop in pairs for how in SCORERS)
    summary = f"largest difference {largest:.2g} nats over {len(texts)} texts in {section.dtype}"
    return {"summary": summary, "largest_difference": largest, "texts": texts, "plain": plain}


def scored(section: Section, problem: Any) -> Fields:
    """Return DiSE's scores of a text, and the ids that it reads."""
    llm, values = section.llm, Fields()
    for how, options in SCORERS.items():
        params = ScoringParams(selector="response", **options)
        [answer] = llm.score(problem.prompt, problem.candidates[0], params)
        values[how] = answer.outputs[0].score.value
    ids, token_ids = answer.prompt_token_ids, answer.outputs[0].token_ids
    end = [end_id for end_id in [llm.planner.end_id(problem.prompt)] if end_id is not None]
    more = -len([*ids, *token_ids, *end]) % (section.info.block_length or 1)
    end += [section.info.special.eos_id or 0] * more
    return {"prompt": ids, "response": token_ids, "end": end, "dise": values}


def plain_scores(section: Section, text: Fields) -> Fields:
    """Return the means of the text as it is, and with every other token masked, its end too."""
    plain, start = section.plain, len(text["prompt"])
    ids = text["prompt"] + text["response"] + text["end"]
    places = range(start, start + len(text["response"]))

    def total(shown: list[int], asked: Sequence[int]) -> float:
        logprobs = plain.logits(shown, asked).log_softmax(-1)
        return sum(float(row[ids[place]]) for row, place in zip(logprobs, asked, strict=True))

    masked, length, stop = 0.0, plain.block or len(ids), places.stop + len(text["end"][:1])
    for first, parity in itertools.product(range(0, len(ids), length), (0, 1)):
        group = {*range(start + parity, stop, 2)} & {*range(first, first + length)}
        shown = [plain.mask if place in group else token for place, token in enumerate(ids)]
        masked += total(shown, sorted(group & {*places}))
    return {"feeding": total(ids, places) / len(places), "masking": masked / len(places)}


if __name__ == "__main__":
    run = Section(json.loads(sys.argv[2]))
    try:
        run.once("result", {"load": load, "sampler": sampler, "scores": scores}[sys.argv[1]])
    except TimeoutError:
        sys.exit(3)
