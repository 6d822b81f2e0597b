"""A user's program over every public name, as a user writes one: it runs, and type checkers accept
it, without a plugin, as they see an installed library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import torch
from pydantic import Field
from rich.console import Console

import dise
import dise_adapters as adapters
import dise_app as app
import dise_core as core
import dise_eval as lab
from dise_cluster.workers import DiseGenerator, DiseScorer
from dise_core import testing

P = TypeVar("P", bound=core.Params)

PROBLEM = "83,18,75 -> 10"
PARAMS = dise.SamplingParams(
    max_tokens=48,
    temperature=0.7,
    n=2,
    stop=["\n\n"],
    seed=0,
    logit_bias={5: -1.5},
    forbidden_token_ids=[9],
)


class EverySecond(core.Selector):
    """Selects every second token of the response."""

    step: int = Field(default=2, ge=1)

    def select(self, sequence: core.TokenSequence) -> core.Mask:
        return sequence.mask_of(sequence.response_positions[:: self.step])

    def weights(self, sequence: core.TokenSequence) -> core.Floats | None:
        pieces: tuple[bytes, ...] = sequence.pieces
        return np.array([float(len(piece)) for piece in pieces]) * self.select(sequence)


class Surest(core.Scorer):
    """The mean log-probability of the likeliest token at the selected positions."""

    default_selector = "response"
    takes_weights = True

    def score(self, sequence: core.TokenSequence, selector: core.Selector) -> core.Plan[dise.Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return dise.Score.empty()
        [reading] = yield [core.Read(sequence.ids, positions, core.TopLogProbs(1))]
        weights = selector.weights(sequence)
        return dise.Score.mean_of(reading.logprobs[:, 0], positions, weights)


class OwnTokens(core.Scorer):
    """The mean log-probability of the selected tokens, by its terms."""

    def terms(self, sequence: core.TokenSequence, selector: core.Selector) -> core.Plan[core.Terms]:
        yield from ()
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return core.Terms()
        targets = core.TokenLogProbs(sequence.ids[positions])
        return core.Terms.mean_of([core.Read(sequence.ids, positions, targets)], positions)


class Halving(core.LengthController):
    """Writes max_tokens tokens, then half as many; returns the better text."""

    times: int = Field(default=2, ge=1, le=16)

    def generate(
        self, prompt: core.Ids, denoiser: core.Denoiser, scorer: core.SequenceScorer
    ) -> core.Plan[core.Generation]:
        found = list[core.Generation]()
        for halvings in range(self.times):
            num_tokens = max(denoiser.max_tokens >> halvings, 1)
            text, nfe = yield from core.count_nfe(denoiser.write(prompt, num_tokens))
            evaluation: core.Evaluation = yield from scorer.evaluate(text)
            step = dise.LengthStep(halvings, num_tokens, evaluation.score.value, nfe)
            found.append(core.Generation(text, evaluation, trace=(step,)))
        return max(found, key=lambda each: each.evaluation.score.value)


class Even(core.Constraint):
    """The answer is an even number of at most `digits` digits."""

    digits: int = 4

    def expression(self) -> str:
        return f"[0-9]{{0,{self.digits - 1}}}[02468]"


class Apart(core.UnmaskingPolicy):
    """Commits the surest of every `gap` candidates."""

    confidence = "margin"
    gap: int = 2

    def choose(self, step: core.UnmaskingStep) -> core.Ids:
        return np.argsort(-step.confidences, kind="stable")[:: self.gap][: step.quota]


class Editing(Apart):
    """Replaces drafts as well where the model is surer of another token."""

    edits = True

    @property
    def num_post_steps(self) -> int:
        return 1

    def edit(self, step: core.UnmaskingStep) -> core.Ids:
        drafts: core.Drafts | None = step.drafts
        if drafts is None:
            return np.zeros(0, np.int64)
        confidences: core.Floats = drafts.confidences
        return np.flatnonzero((drafts.candidates != drafts.token_ids) & (confidences > 0.9))


class Cooled(core.RenoisingPolicy):
    """Keeps what is nearly certain, and hides all else again."""

    confidence = "probability"
    num_rounds: int = 8

    @property
    def num_steps(self) -> int:
        return self.num_rounds

    def temperature(self, index: int) -> float:
        return 1.0 - index / (2 * self.num_rounds)

    def choose(self, step: core.UnmaskingStep) -> core.Ids:
        return np.flatnonzero(step.confidences > 0.9)

    def is_finished(self, step: core.UnmaskingStep) -> bool:
        return step.num_stable > 0


class WeakestToken(core.Reviser):
    """Writes the token that the model doubts most again; keeps it if the score rises."""

    def revise(
        self, generation: core.Generation, denoiser: core.Denoiser, scorer: core.SequenceScorer
    ) -> core.Plan[core.Generation]:
        text, before = generation.sequence, generation.evaluation
        if len(text.response) == 0:
            return generation
        report: core.TokenReport = before.tokens or (yield from core.regenerate(text))
        doubted = text.response_positions[[int(np.argmin(report.logprobs))]]
        new, nfe = yield from core.count_nfe(denoiser.rewrite(text, doubted))
        after = yield from scorer.evaluate(new)
        is_better = after.score.value > before.score.value
        tokens: tuple[core.RevisedToken, ...] = core.rewritten(text, new, doubted)
        told = core.Revision(tokens, before.score.value, after.score.value, nfe, is_better)
        if is_better:
            return replace(generation, sequence=new, evaluation=after, revisions=(told,))
        return replace(generation, revisions=(told,))


class Digits(core.MaskPredictor):
    """A model that is surest of what stands one place to the left."""

    checked_on = "nothing"

    abilities: frozenset[core.Ability] = frozenset()

    def __init__(self, name: str, attention: core.Attention) -> None:
        special = core.SpecialTokens(11, frozenset({10}), 10)
        self.info = core.ModelInfo(name, 12, 64, special, attention)
        self.tokenizer: core.Tokenizer = testing.ToyPredictor().tokenizer

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return model == "digits"

    @classmethod
    def load(cls, model: str, config: dise.EngineConfig) -> Self:
        return cls(model, core.Bidirectional())

    def read(self, reads: Sequence[core.Read]) -> list[core.Reading]:
        return [testing.naive_readout(self.logits(each), each) for each in reads]

    def logits(self, read: core.Read) -> core.Floats:
        logits = self.rows(read.token_ids)[read.positions]
        if read.guidance is not None:
            bare = self.rows(read.guidance.token_ids)[read.positions]
            logits = bare + (read.guidance.scale + 1) * (logits - bare)
        return logits

    def rows(self, ids: core.Ids) -> core.Floats:
        """Return the logits of a whole text, [N, V]."""
        logits = np.zeros((len(ids), self.info.vocab_size))
        logits[np.arange(len(ids)), ids[np.arange(len(ids)) - 1]] = 3.0
        return logits


class TorchDigits(Digits):
    """The same, with its logits in torch."""

    def read(self, reads: Sequence[core.Read]) -> list[core.Reading]:
        return [adapters.answer(torch.from_numpy(self.logits(each)), each) for each in reads]


def first_answer(reads: Sequence[core.Read]) -> core.Reading:
    """Answer by a module that is in memory."""
    embedded = torch.nn.Embedding(12, 12)
    info = Digits("digits", core.Bidirectional()).info
    return adapters.reader_of(embedded, info, answers_for="own").read(reads)[0]


def in_memory(tokenizer: core.Tokenizer) -> core.AsyncLLM:
    """Score by a module that is in memory, and serve it."""
    module = torch.nn.Embedding(12, 12)
    llm = core.LLM.from_model(module, tokenizer, mask_id=11, max_length=8, max_num_seqs=4)
    llm.update_weights(module.named_parameters())
    return core.AsyncLLM.from_model(module, tokenizer, mask_id=11, max_length=8)


class Counting(core.Params):
    """Options of an engine, or of a plugin's routes."""

    weight: int = Field(default=1, ge=1)


class MemoryBackend(core.Backend[adapters.Checkpoint]):
    """Opens checkpoints without reading them."""

    options = Counting

    @classmethod
    def open(cls, checkpoint: adapters.Checkpoint, config: dise.EngineConfig) -> core.Reader:
        return testing.ToyPredictor()

    @classmethod
    def hold(cls, loaded: core.LoadedModule) -> core.MaskPredictor:
        return testing.ToyPredictor(max_length=loaded.max_length or 40)


MINE = adapters.Family(
    about="A Qwen2 that we taught to denoise.",
    architectures=("OurDiffusionQwen2",),
    model_class="Qwen2ForCausalLM",
    translate=adapters.qwen_settings,
    end_tokens=("<|endoftext|>",),
    attention=core.BlockCausal(32),
)


def translated(config: adapters.ConfigJson) -> dict[str, object]:
    """Return the settings of a family whose feed-forward is fused."""
    normed = adapters.qwen3_settings(config)
    return {**adapters.llama_settings(config), **normed, "layers": config.whole("n_layers")}


FUSED = adapters.Split(
    "gate_up", ("gate", "up"), lambda settings: (settings["intermediate_size"],) * 2
)
THEIRS = adapters.Family(
    about="Fused.", model_class="LlamaForCausalLM", translate=translated, split=FUSED
)


@core.hookimpl
def dise_selectors() -> dict[str, type[core.Selector]]:
    return {"every-second": EverySecond}


@core.hookimpl
def dise_mask_predictors() -> dict[str, type[core.MaskPredictor]]:
    mine: type[adapters.CheckpointPredictor] = adapters.predictor_of(MINE)
    return {"digits": Digits, "mine": mine}


@core.hookimpl
def dise_engines() -> dict[str, type[core.Backend[adapters.Checkpoint]]]:
    return {"memory": MemoryBackend}


def check_plugin() -> None:
    """Run the conformance kits on the plugin."""
    testing.check_selector(EverySecond(step=3))
    testing.check_scorer(Surest())
    testing.check_scorer(OwnTokens())
    testing.check_scorer(Surest(), testing.ToyPredictor(), tolerance=1e-6)
    testing.check_length_controller(Halving(times=3))
    testing.check_unmasking_policy(Apart(gap=3))
    testing.check_unmasking_policy(Editing())
    testing.check_unmasking_policy(Cooled())
    testing.check_constraint(Even(digits=3))
    testing.check_reviser(WeakestToken())
    digits = Digits("digits", core.Bidirectional())
    testing.check_mask_predictor(digits, logits=digits.rows)
    in_torch = TorchDigits("digits", core.Bidirectional())
    read = core.Read(np.array([3, 11]), np.array([1]), core.TopLogProbs(1))
    assert in_torch.read([read])[0].token_ids.tolist() == [[3]]
    assert first_answer([read]).token_ids.shape == (1, 1)
    testing.check_tokenizer(digits.tokenizer, digits.info.vocab_size)
    testing.check_claims(Digits, claimed=["digits"], not_claimed=["countdown"])


def check_on(model: str) -> None:
    """Run the kit of engines on a checkpoint."""
    testing.check_engine(MemoryBackend, model, Counting(weight=2))


def show(answer: dise.RequestOutput) -> None:
    """Print an answer, and what is known of it."""
    usage: dise.Usage = answer.usage
    print(answer.prompt, answer.seed, usage.nfe, usage.seconds, answer.to_dict()["model"])
    output: dise.CompletionOutput
    token: dise.Token
    for output in answer.outputs:
        print(f"{output.score.value:.3f} {output.text} {output.finish_reason}")
        for token in output.tokens:
            if token.selected and token.logprob is not None:
                print(f"{token.id} {token.text!r} {token.logprob:.3f} {token.top_logprobs[:1]}")
        explanation: dise.Explanation | None = output.explanation
        reads: tuple[dise.ExplainedRead, ...] = () if explanation is None else explanation.reads
        counted: list[dise.ExplainedToken] = []
        if explanation is not None:
            counted = [token for token in explanation.tokens if token.counts]
        print(reads, counted)
        field: dise.Field
        for pointer, field in output.fields.items():
            print(pointer, field.value, field.type, field.score, field.probability)


def generate(llm: dise.LLM) -> None:
    """Ask in every way."""
    prompts: list[dise.Prompt] = [PROBLEM, [1, 2, 3]]
    for answer in llm.generate(prompts, [PARAMS, dise.SamplingParams(max_tokens=8, steps=4)]):
        show(answer)
    show(llm.generate(PROBLEM, sampling_params=PARAMS, on_error="return")[0])
    as_digits = dise.SamplingParams(
        max_tokens=8, constraint="json-schema", constraint_settings={"schema": {"type": "integer"}}
    )
    show(llm.generate(PROBLEM, as_digits)[0])
    show(llm.fill("83,18,", " -> 10", dise.SamplingParams(max_tokens=2))[0])
    conversation: list[dise.Message] = [{"role": "user", "content": PROBLEM}]
    show(llm.chat(conversation, PARAMS)[0])
    show(llm.chat([conversation], sampling_params=[PARAMS])[0])
    for event in llm.stream(PROBLEM, PARAMS):
        if isinstance(event, dise.CanvasUpdate):
            token: dise.CanvasToken
            for token in event.committed:
                print(token.position, token.text, token.is_end, event.settled)
        else:
            show(event)
    plans = (llm.planner.generate(prompt, PARAMS) for prompt in (PROBLEM, "not Countdown"))
    for outcome in llm.run(plans):
        told: dise.DiseError | dise.RequestOutput = outcome.error or outcome.unwrap()
        print(outcome.index, outcome.seconds, told)


def score(llm: dise.LLM) -> None:
    """Score and rank given texts."""
    params = dise.ScoringParams(scorer="mc", scorer_settings={"num_samples": 4}, logprobs=None)
    [scored] = llm.score(PROBLEM, "18+75-83", params)
    [told] = llm.score([PROBLEM], ["18+75-83"], dise.ScoringParams.of(PARAMS))
    ranked = llm.rank(PROBLEM, ["18+75-83", "83-75+18"])
    for ranking in llm.rank([PROBLEM, "1,2 -> 3"], [["18+75-83", "83"], ["1+2", "2-1"]], params):
        print(ranking.outputs[0].index)
    bounds: core.Bounds | None = scored.outputs[0].score.bounds
    print(bounds and (bounds.lower, bounds.upper))
    print(scored.outputs[0].score.log_likelihood, told.to_dict(), ranked.outputs[0].text)


def decide(llm: dise.LLM) -> None:
    """Ask typed questions."""
    questions: list[dise.Question] = [
        dise.PredicateQuestion(
            instructions="18", yes="+", no=dise.Option(label="-", description="less")
        ),
        dise.ChoiceQuestion(
            instructions="18", choices=["+", dise.Choice(value="-"), "*"], name="sign"
        ),
        dise.ScoreQuestion(instructions="8", levels=("1", dise.Option(label="2"), "3")),
    ]
    params = dise.DecisionParams(layout="cloze", joint=True)
    print(dise.DecisionParams(reading="each", confidence="margin"))
    decided: dise.DecisionOutput = llm.decide(PROBLEM, questions, params)
    several: list[dise.DecisionOutput] = llm.decide([PROBLEM, "1,2 -> 3"], questions, params)
    for answer in decided.answers:
        diagnostics: dise.Diagnostics = answer.diagnostics
        print(answer.name, diagnostics.label_mass, diagnostics.argmax_is_label)
        print(diagnostics.reading, diagnostics.passes, diagnostics.confidence)
        if isinstance(answer, dise.PredicateAnswer):
            print(answer.probability)
        elif isinstance(answer, dise.ChoiceAnswer):
            print(answer.choice, [each.value for each in answer.probabilities])
        else:
            level: dise.ScoreAnswer = answer
            print(level.score, [each.label for each in level.probabilities])
    print(decided.warnings, decided.is_joint, several[1].usage.nfe, decided.to_dict())


def decide_by(llm: dise.LLM, path: Path) -> None:
    """Answer by a calibration."""
    calibration = dise.DecisionCalibration.load(path)
    question = dise.ChoiceQuestion(name="sign", instructions="18", choices=["+", "-"])
    [answer] = llm.decide(PROBLEM, [question], calibration=calibration).answers
    answers: dise.AnswerSet | None = answer.answer_set
    print(answer.abstained, answers and (answers.values, answers.coverage, answers.n))


async def serve() -> None:
    """Ask as coroutines, which derive from the same verbs."""
    budget = dise.Budget(passes=1000, tokens=1_000_000)
    async with dise.AsyncLLM("countdown", budget=budget, max_waiting=8, device="cpu") as llm:
        [answer] = await llm.generate(PROBLEM, PARAMS)
        ranked = await llm.rank(PROBLEM, ["18+75-83", "83-75+18"])
        show(answer)
        async for event in llm.stream(PROBLEM, PARAMS):
            if isinstance(event, dise.CanvasUpdate):
                print(event.text, event.logprobs)
            else:
                show(event)
        outcome: dise.Outcome[dise.RequestOutput]
        async for outcome in llm.run(llm.planner.generate(each, PARAMS) for each in (PROBLEM,)):
            show(outcome.unwrap())
        print(ranked.outputs[0].index, app.create_app(llm, app.Limits()).title)


def fail(llm: dise.LLM) -> None:
    """Handle every error."""
    try:
        llm.generate("83,18,75 -> 10", dise.SamplingParams(scorer="none"))
    except dise.UnknownNameError as error:
        print(error.parameter, error)
    except (dise.TooLongError, dise.InputError) as error:
        print(error.parameter)
    except dise.PluginError as error:
        print(error.plugin)
    except (dise.OverloadedError, dise.UnreachableError):
        raise
    except (dise.ModelOutputError, dise.CheckpointError, dise.ModelError):
        pass
    except (dise.PlanError, dise.DiseError) as error:
        print(error)
    llm.close()
    try:
        llm.generate(PROBLEM)
    except dise.ClosedError as error:
        print(error)


def embed() -> None:
    """Run plans in a loop of one's own, on a model of one's own."""
    toy = testing.ToyPredictor(attention=core.Bidirectional())
    special, spell = toy.info.special, toy.tokenizer.spell
    text = core.TokenSequence.of([1, 2], [3, 4, 5], special, block_length=4, spell=spell)
    plans = core.gather(Surest().score(text, EverySecond()), sureness(text))
    one, other = core.drive(plans, toy.read)
    print(one.value, other.num_positions)
    positions: core.Ids = text.response_positions
    kind: core.Confidence = "entropy"
    room: core.CacheRoom | None = toy.room
    readouts: list[core.Readout] = [
        core.TokenLogProbs(text.ids[positions]),
        core.Candidates(temperature=0.5, noise=core.Noise(7).at_step(1), confidence=kind),
        core.TopLogProbs(3),
        core.Distribution(),
    ]
    hint = core.CacheHint(core.CacheSlot(), window=None)
    canvas = core.Canvas(sample=0, start=2, is_settled=True)
    guidance = core.Guidance.without_prompt(text, positions, scale=1.5)
    reads = [core.Read(text.ids, positions, each, cache=hint, canvas=canvas) for each in readouts]
    reads.append(core.Read(text.ids, positions, core.TopLogProbs(1), guidance=guidance))
    for reading in toy.read(reads):
        logprobs: core.LogProbs = reading.logprobs
        print(logprobs.shape, reading.token_ids.dtype, reading.is_exact)
    print(
        core.Causal().allows(positions, positions),
        core.Canvases(256).num_seen(positions),
        room and room.num_free,
    )
    print(room and room.counted(hint, len(text.ids)))
    with dise.LLM(Digits("digits", core.Bidirectional()), max_num_seqs=4) as llm:
        show(llm.generate("abc", dise.SamplingParams(max_tokens=4))[0])


def sureness(text: core.TokenSequence) -> core.Plan[dise.Score]:
    """Return a plan of a plan's result."""
    score = yield from Surest().score(text, EverySecond(step=1))
    return replace(score, perplexity=None)


def corpus() -> DiseGenerator:
    """Make the workers of a pipeline."""
    print(DiseScorer(params=dise.ScoringParams(selector="response")))
    return DiseGenerator("countdown", dise.SamplingParams(seed=0), device="cpu")


def read_checkpoint(folder: Path) -> None:
    """Open a checkpoint's files."""
    fields = adapters.hub.read_config(str(folder)) or {}
    tokenizer = adapters.FastTokenizer.from_folder(folder)
    checkpoint = adapters.Checkpoint(
        THEIRS, adapters.Safetensors(folder), mask_id=tokenizer.id_of("<|mdm_mask|>")
    )
    blocks = {"block": core.BlockCausal(4)}
    attention = adapters.Varying(names=blocks, otherwise=core.Bidirectional())
    print(adapters.architectures(fields), attention, checkpoint.folder)


def open_checkpoint(checkpoint: adapters.Checkpoint) -> core.Reader:
    """Return its reader, on the engine that the options name."""
    return adapters.load_reader(checkpoint, dise.EngineConfig(engine="transformers", device="cpu"))


def calibrated(path: Path, catalog: dise.Catalog) -> dise.LLM:
    """Return a model that tells the probability of being right."""
    calibration = dise.Calibration.load(path)
    print(calibration.probability(-0.1), calibration.abstains(-0.1), calibration.threshold)
    return dise.LLM("countdown", calibration=calibration, catalog=catalog, dtype="float32")


class Text(app.Body):
    """What a client sends."""

    text: str


def add_count(routes: list[str], service: app.Service) -> None:
    routes.append(f"{service.options(Counting).weight}, {service.limits}, {Text(text='1')}")


class Nowhere(app.FileRunner):
    """Answers no file."""

    def takes(self, files: Mapping[str, object]) -> bool:
        return False

    def run(self, work: app.Work[P]) -> None:
        print(work.command)


@app.verb(
    shared=app.SHARED,
    **app.SCORED,
    counted=app.FieldOptions(Counting),
    more=app.Own(twice=app.option(bool, "Count twice.", False)),
)
def count(text: str, *, parts: app.Parts) -> None:
    """Count the characters of a text."""
    print(len(text) * (1 + parts.more["twice"]) * parts.counted.get("weight", 1))


class EvenNumber(lab.Grader):
    """Whether a number is even."""

    version = "even-1"

    def __init__(self, truth: object, mode: str) -> None:
        self.truth = truth

    def grade(self, response: str) -> lab.Verdict:
        return lab.Verdict(response[-1:] in "02468", response[-1:], "its last digit")


def prompt_of(row: lab.DataRow) -> str:
    if row["text"] is None:
        raise lab.UnsuitableRowError("it has no text")
    return str(row["text"])


MAKER: lab.GraderMaker = EvenNumber
EVENS = lab.Dataset(
    name="evens", prompt=prompt_of, answer="answer", grader=MAKER, hub=lab.Hub("us/evens")
)


@core.hookimpl
def dise_datasets() -> dict[str, lab.Dataset]:
    return {"evens": EVENS}


def extend(llm: dise.LLM) -> None:
    """Use what verbs, data sets and routes are made of, and strategies without a package."""
    problem: lab.Problem = EVENS.problem({"text": "1+1", "answer": 2}, 0)
    questions: lab.ProblemSet = lab.load("countdown-short", limit=2)
    graders: list[lab.Grader] = [
        EVENS.grading(problem, "robust"),
        lab.CountdownGrader([1, 1], 2, "robust"),
    ]
    print([grader.grade("2").is_correct for grader in graders], len(questions.items))
    lab.check_grader(EvenNumber, None, "so 2", "so 3")
    adders: list[app.RouteAdder] = [lambda router, service: (router, service)]
    app.check_routes(adders[0], {})
    print(lab.prr(np.array([0.1, 0.9]), np.array([False, True])), count.__doc__, Nowhere())
    params = dise.ScoringParams(scorer=Surest(), selector=EverySecond(step=3))
    [answer] = llm.score("", "18+75=93", params, chat=False)
    console = Console()
    app.show_answer(console, answer)
    app.show_legend(console, [answer])
    installed: dise.Catalog = core.installed_catalog()
    entry: core.Entry[type[core.Scorer]] = installed.scorers["dise"]
    print(entry.load(), core.INTERFACE_VERSION, core.catalog_of)
    plugins, options = [Surest, EverySecond, MemoryBackend], Counting(weight=2)
    engine = "MemoryBackend"
    with dise.LLM(
        "countdown", lazy=True, plugins=plugins, engine=engine, engine_options=options
    ) as lazy:
        print(lazy.config.own)
    with dise.LLM(testing.ToyPredictor(), plugins=plugins) as toy:
        show(toy.score("a", "bc", dise.ScoringParams(scorer="Surest"), chat=False)[0])
    read = core.Read(np.arange(3), np.arange(1), core.TopLogProbs(1))
    print(core.completed(read, llm.predictor.info).is_complete)
    print(core.noise_levels(read, llm.predictor.info).max())


def main() -> None:
    """Run all that needs no other file."""
    print(dise.__version__)
    check_plugin()
    with dise.LLM("countdown", device="cpu") as llm:
        generate(llm)
        score(llm)
        decide(llm)
        extend(llm)
        fail(llm)
        print(llm, sorted(llm.catalog.scorers))
    print(corpus())
    asyncio.run(serve())
    embed()


if __name__ == "__main__":
    main()
