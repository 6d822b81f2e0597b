"""A user's program over every public name, as a user writes one: it runs, and type checkers accept
it, without a plugin, as they see an installed library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import Field

import dise
from dise import (
    LLM,
    AsyncLLM,
    Budget,
    Calibration,
    CanvasToken,
    CanvasUpdate,
    Catalog,
    CheckpointError,
    Choice,
    ChoiceAnswer,
    ChoiceQuestion,
    ClosedError,
    CompletionOutput,
    DecisionOutput,
    DecisionParams,
    Diagnostics,
    DiseError,
    EngineConfig,
    InputError,
    LengthStep,
    Message,
    ModelError,
    ModelOutputError,
    Option,
    Outcome,
    OverloadedError,
    PlanError,
    PluginError,
    PredicateAnswer,
    PredicateQuestion,
    Prompt,
    Question,
    RequestOutput,
    SamplingParams,
    Score,
    ScoreAnswer,
    ScoreQuestion,
    ScoringParams,
    Token,
    TooLongError,
    UnknownNameError,
    UnreachableError,
    Usage,
)
from dise_adapters import (
    Checkpoint,
    CheckpointPredictor,
    ConfigJson,
    Family,
    FastTokenizer,
    Split,
    Varying,
    architectures,
    hub,
    llama_settings,
    load_reader,
    predictor_of,
    qwen3_settings,
    qwen_settings,
)
from dise_core import (
    Attention,
    Backend,
    Bidirectional,
    BlockCausal,
    CacheHint,
    CacheRoom,
    CacheSlot,
    Candidates,
    Canvas,
    Causal,
    Confidence,
    Denoiser,
    Distribution,
    Drafts,
    Evaluation,
    Floats,
    Generation,
    Guidance,
    Ids,
    LengthController,
    LogProbs,
    Mask,
    MaskPredictor,
    ModelInfo,
    Noise,
    Plan,
    Read,
    Reader,
    Reading,
    Readout,
    RevisedToken,
    Reviser,
    Revision,
    Scorer,
    Selector,
    SequenceScorer,
    SpecialTokens,
    Tokenizer,
    TokenLogProbs,
    TokenReport,
    TokenSequence,
    TopLogProbs,
    UnmaskingPolicy,
    UnmaskingStep,
    count_nfe,
    drive,
    gather,
    hookimpl,
    regenerate,
    rewritten,
)
from dise_core.testing import (
    ToyPredictor,
    check_claims,
    check_length_controller,
    check_mask_predictor,
    check_reviser,
    check_scorer,
    check_selector,
    check_unmasking_policy,
    naive_readout,
)

PROBLEM = "83,18,75 -> 10"
PARAMS = SamplingParams(
    max_tokens=48,
    block_length=16,
    temperature=0.7,
    n=2,
    best_of=3,
    stop=["\n\n"],
    seed=0,
    logprobs=2,
    selector="response-text",
    logit_bias={5: -1.5},
    forbidden_token_ids=[9],
    scorer_settings={},
)


# A plugin


class EverySecond(Selector):
    """Selects every second token of the response."""

    step: int = Field(default=2, ge=1)

    def select(self, sequence: TokenSequence) -> Mask:
        return sequence.mask_of(sequence.response_positions[:: self.step])


class Surest(Scorer):
    """The mean log-probability of the likeliest token at the selected positions."""

    default_selector = "response"

    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        positions = np.flatnonzero(selector.select(sequence))
        if len(positions) == 0:
            return Score.of_nothing()
        [reading] = yield [Read(sequence.ids, positions, TopLogProbs(1))]
        return Score.mean_of(reading.logprobs[:, 0], positions)


class Halving(LengthController):
    """Writes max_tokens tokens, then half as many; returns the better text."""

    times: int = Field(default=2, ge=1, le=16)

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        found = list[Generation]()
        for halvings in range(self.times):
            num_tokens = max(denoiser.max_tokens >> halvings, 1)
            text, nfe = yield from count_nfe(denoiser.write(prompt, num_tokens))
            evaluation: Evaluation = yield from scorer.evaluate(text)
            step = LengthStep(halvings, num_tokens, evaluation.score.value, nfe)
            found.append(Generation(text, evaluation, trace=(step,)))
        return max(found, key=lambda each: each.evaluation.score.value)


class Apart(UnmaskingPolicy):
    """Commits the surest candidates that are at least `gap` positions apart."""

    confidence = "margin"
    gap: int = 2

    def choose(self, step: UnmaskingStep) -> Ids:
        chosen = list[int]()
        for index in np.argsort(-step.confidences, kind="stable").tolist():
            distances = np.abs(step.positions[chosen] - step.positions[index])
            if len(chosen) < step.quota and (distances >= self.gap).all():
                chosen.append(index)
        return np.array(chosen, np.int64)


class Editing(UnmaskingPolicy):
    """Commits the surest candidate, and replaces drafts that the model is surer of otherwise."""

    edits = True

    @property
    def num_post_steps(self) -> int:
        return 1

    def choose(self, step: UnmaskingStep) -> Ids:
        noise: Floats = step.random()
        return np.array([np.lexsort((noise, -step.confidences))[0]])

    def edit(self, step: UnmaskingStep) -> Ids:
        drafts: Drafts | None = step.drafts
        if drafts is None:
            return np.zeros(0, np.int64)
        is_other = drafts.candidates != drafts.token_ids
        return np.flatnonzero(is_other & (drafts.confidences > 0.9))


class WeakestToken(Reviser):
    """Writes the token that the model doubts most again; keeps it if the score rises."""

    def revise(
        self, generation: Generation, denoiser: Denoiser, scorer: SequenceScorer
    ) -> Plan[Generation]:
        text, before = generation.sequence, generation.evaluation
        if len(text.response) == 0:
            return generation
        report: TokenReport = before.tokens or (yield from regenerate(text))
        doubted = text.response_positions[[int(np.argmin(report.logprobs))]]
        new, nfe = yield from count_nfe(denoiser.rewrite(text, doubted))
        after = yield from scorer.evaluate(new)
        is_better = after.score.value > before.score.value
        tokens: tuple[RevisedToken, ...] = rewritten(text, new, doubted)
        told = Revision(tokens, before.score.value, after.score.value, nfe, is_better)
        if is_better:
            return replace(generation, sequence=new, evaluation=after, revisions=(told,))
        return replace(generation, revisions=(told,))


class DigitTokenizer(Tokenizer):
    """Tokens are digits; 10 is the end, 11 the mask."""

    @property
    def has_chat_template(self) -> bool:
        return False

    @property
    def start_ids(self) -> Ids:
        return np.zeros(0, np.int64)

    def encode(self, text: str) -> Ids:
        if not text.isdecimal():
            raise InputError(f"only digits, not {text!r}", "prompt")
        return np.array([int(digit) for digit in text], np.int64)

    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        raise InputError("there is no chat template", "messages")

    def decode(self, ids: Ids) -> str:
        return "".join(str(token) for token in ids.tolist() if token < 10)

    def token_text(self, token_id: int) -> str:
        return str(token_id) if token_id < 10 else f"<{token_id}>"


class Digits(MaskPredictor):
    """A model that is surest of what stands one place to the left."""

    checked_on = "nothing"

    def __init__(self, name: str, attention: Attention) -> None:
        special = SpecialTokens(11, frozenset({10}), 10)
        self.info = ModelInfo(name, 12, 64, special, attention)
        self.tokenizer = DigitTokenizer()

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:
        return model == "digits"

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        return cls(model, Bidirectional())

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [naive_readout(self.logits(each), each) for each in reads]

    def logits(self, read: Read) -> Floats:
        logits = np.zeros((len(read.positions), self.info.vocab_size))
        logits[np.arange(len(logits)), read.token_ids[read.positions - 1]] = 3.0
        return logits


class InMemory(Reader):
    """Answers with no model at all."""

    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        return [Reading.of_nothing() for _ in reads]


class MemoryBackend(Backend[Checkpoint]):
    """Opens checkpoints without reading them."""

    @classmethod
    def open(cls, checkpoint: Checkpoint, config: EngineConfig) -> Reader:
        if config.quantization is not None:
            raise InputError("this engine quantizes nothing", "quantization")
        return InMemory()


MINE = Family(
    about="A Qwen2 that we taught to denoise.",
    architectures=("OurDiffusionQwen2",),
    model_class="Qwen2ForCausalLM",
    translate=qwen_settings,
    end_tokens=("<|endoftext|>",),
    attention=BlockCausal(32),
)


def translated(config: ConfigJson) -> dict[str, object]:
    """Return the settings of a family whose feed-forward is fused."""
    return {**llama_settings(config), **qwen3_settings(config), "layers": config.whole("n_layers")}


FUSED = Split("gate_up", ("gate", "up"), lambda settings: (settings["intermediate_size"],) * 2)
THEIRS = Family(about="Fused.", model_class="LlamaForCausalLM", translate=translated, split=FUSED)


@hookimpl
def dise_selectors() -> dict[str, type[Selector]]:
    return {"every-second": EverySecond}


@hookimpl
def dise_scorers() -> dict[str, type[Scorer]]:
    return {"surest": Surest}


@hookimpl
def dise_length_controllers() -> dict[str, type[LengthController]]:
    return {"halving": Halving}


@hookimpl
def dise_unmasking_policies() -> dict[str, type[UnmaskingPolicy]]:
    return {"apart": Apart, "editing": Editing}


@hookimpl
def dise_revisers() -> dict[str, type[Reviser]]:
    return {"weakest-token": WeakestToken}


@hookimpl
def dise_mask_predictors() -> dict[str, type[MaskPredictor]]:
    mine: type[CheckpointPredictor] = predictor_of(MINE)
    return {"digits": Digits, "mine": mine}


@hookimpl
def dise_engines() -> dict[str, type[Backend[Checkpoint]]]:
    return {"memory": MemoryBackend}


def check_plugin() -> None:
    """Run the conformance kits on the plugin."""
    check_selector(EverySecond(step=3))
    check_scorer(Surest())
    check_scorer(Surest(), ToyPredictor(), tolerance=1e-6)
    check_length_controller(Halving(times=3))
    check_unmasking_policy(Apart(gap=3))
    check_unmasking_policy(Editing())
    check_reviser(WeakestToken())
    check_mask_predictor(Digits("digits", Bidirectional()))
    check_claims(Digits, claimed=["digits"], not_claimed=["countdown"])


# A program


def show(answer: RequestOutput) -> None:
    """Print an answer, and what is known of it."""
    usage: Usage = answer.usage
    print(answer.prompt, answer.seed, usage.nfe, usage.seconds, answer.to_dict()["model"])
    for output in answer.outputs:
        show_output(output)


def show_output(output: CompletionOutput) -> None:
    """Print one of its responses."""
    score: Score = output.score
    token: Token
    for token in output.tokens:
        if token.selected and token.logprob is not None:
            print(f"{token.id} {token.text!r} {token.logprob:.3f} {token.top_logprobs[:1]}")
    print(f"{score.value:.3f} {output.text} {output.finish_reason} {score.positions.sum()}")
    print(output.probability or 0.0, [step.num_tokens for step in output.trace])


def generate(llm: LLM) -> None:
    """Ask in every way."""
    prompts: list[Prompt] = [PROBLEM, [1, 2, 3]]
    for answer in llm.generate(prompts, [PARAMS, SamplingParams(max_tokens=8, steps=4)]):
        show(answer)
    show(llm.generate(PROBLEM, sampling_params=PARAMS, on_error="return")[0])
    conversation: list[Message] = [{"role": "user", "content": PROBLEM}]
    [chatted] = llm.chat(conversation, PARAMS)
    [again] = llm.chat([conversation], sampling_params=[PARAMS])
    assert chatted.outputs[0].text == again.outputs[0].text
    for event in llm.stream(PROBLEM, PARAMS):
        if isinstance(event, CanvasUpdate):
            token: CanvasToken
            for token in event.committed:
                print(token.position, token.text, token.is_end, event.settled)
        else:
            show(event)
    plans = (llm.planner.generate(prompt, PARAMS) for prompt in (PROBLEM, "not Countdown"))
    for outcome in llm.run(plans):
        told: DiseError | RequestOutput = outcome.error or outcome.unwrap()
        print(outcome.index, outcome.seconds, told)


def score(llm: LLM) -> None:
    """Score and rank given texts."""
    params = ScoringParams(scorer="mc", scorer_settings={"num_samples": 4}, logprobs=None)
    [scored] = llm.score(PROBLEM, "18+75-83", params)
    [told] = llm.score([PROBLEM], ["18+75-83"], ScoringParams.of(PARAMS))
    ranked = llm.rank(PROBLEM, ["18+75-83", "83-75+18"])
    for ranking in llm.rank([PROBLEM, "1,2 -> 3"], [["18+75-83", "83"], ["1+2", "2-1"]], params):
        print(ranking.outputs[0].index)
    print(scored.outputs[0].score.log_likelihood, told.to_dict(), ranked.outputs[0].text)


def decide(llm: LLM) -> None:
    """Ask typed questions."""
    questions: list[Question] = [
        PredicateQuestion(instructions="18", yes="+", no=Option(label="-", description="less")),
        ChoiceQuestion(instructions="18", choices=["+", Choice(value="-"), "*"], name="sign"),
        ScoreQuestion(instructions="8", levels=("1", Option(label="2"), "3")),
    ]
    params = DecisionParams(layout="cloze", joint=True)
    decided: DecisionOutput = llm.decide(PROBLEM, questions, params)
    several: list[DecisionOutput] = llm.decide([PROBLEM, "1,2 -> 3"], questions, params)
    for answer in decided.answers:
        diagnostics: Diagnostics = answer.diagnostics
        print(answer.name, diagnostics.label_mass, diagnostics.argmax_is_label)
        if isinstance(answer, PredicateAnswer):
            print(answer.probability)
        elif isinstance(answer, ChoiceAnswer):
            print(answer.choice, [each.value for each in answer.probabilities])
        else:
            level: ScoreAnswer = answer
            print(level.score, [each.label for each in level.probabilities])
    print(decided.warnings, decided.is_joint, several[1].usage.nfe, decided.to_dict())


async def serve() -> None:
    """Ask in the same ways at once."""
    budget = Budget(passes=1000, tokens=1_000_000)
    async with AsyncLLM("countdown", budget=budget, max_waiting=8, device="cpu") as llm:
        answers = await asyncio.gather(*(llm.generate(PROBLEM, PARAMS) for _ in range(2)))
        for [answer] in answers:
            show(answer)
        [chatted] = await llm.chat([{"role": "user", "content": PROBLEM}], sampling_params=PARAMS)
        [scored] = await llm.score(PROBLEM, "18+75-83")
        ranked = await llm.rank(PROBLEM, ["18+75-83", "83-75+18"])
        sign = ChoiceQuestion(instructions="18", choices=["+", "-"])
        decided = await llm.decide(PROBLEM, [sign], DecisionParams(layout="cloze"))
        async for event in llm.stream(PROBLEM, PARAMS):
            if isinstance(event, CanvasUpdate):
                print(event.text, event.logprobs)
            else:
                show(event)
        outcome: Outcome[RequestOutput]
        async for outcome in llm.run(llm.planner.generate(each, PARAMS) for each in (PROBLEM,)):
            show(outcome.unwrap())
        print(chatted.model, scored.cache, ranked.seed, decided.model)


def fail(llm: LLM) -> None:
    """Handle every error."""
    try:
        llm.generate("83,18,75 -> 10", SamplingParams(scorer="none"))
    except UnknownNameError as error:
        print(error.parameter, error)
    except (TooLongError, InputError) as error:
        print(error.parameter)
    except PluginError as error:
        print(error.plugin)
    except (ModelOutputError, CheckpointError, UnreachableError, ModelError, PlanError):
        pass
    except OverloadedError:
        raise
    except DiseError as error:
        print(error)
    llm.close()
    try:
        llm.generate(PROBLEM)
    except ClosedError as error:
        print(error)


def embed() -> None:
    """Run plans in a loop of one's own, on a model of one's own."""
    toy = ToyPredictor(attention=Bidirectional())
    text = TokenSequence.of([1, 2], [3, 4, 5], toy.info.special, block_length=4)
    one, other = drive(gather(Surest().score(text, EverySecond()), sureness(text)), toy.read)
    print(one.value, other.num_positions)
    positions: Ids = text.response_positions
    readouts: list[Readout] = [
        TokenLogProbs(text.ids[positions]),
        Candidates(temperature=0.5, noise=Noise(7).at_step(1), confidence=kind_of(surest=True)),
        TopLogProbs(3),
        Distribution(),
    ]
    hint, canvas = CacheHint(CacheSlot(), window=None), Canvas(sample=0, start=2, is_settled=True)
    guidance = Guidance.without_prompt(text, positions, scale=1.5)
    reads = [Read(text.ids, positions, each, cache=hint, canvas=canvas) for each in readouts]
    reads.append(Read(text.ids, positions, TopLogProbs(1), guidance=guidance))
    for reading in toy.read(reads):
        logprobs: LogProbs = reading.logprobs
        print(logprobs.shape, reading.token_ids.dtype, reading.is_exact)
    print(Causal().allows(positions, positions), free_room(toy.room))
    with LLM(Digits("digits", Bidirectional()), max_num_seqs=4) as llm:
        show(llm.generate("123", SamplingParams(max_tokens=4))[0])


def sureness(text: TokenSequence) -> Plan[Score]:
    """Return a plan of a plan's result."""
    score = yield from Surest().score(text, EverySecond(step=1))
    return replace(score, perplexity=None)


def kind_of(surest: bool) -> Confidence:
    """Return a kind of confidence."""
    return "probability" if surest else "entropy"


def free_room(room: CacheRoom | None) -> int:
    """Return how many tokens have room."""
    return 0 if room is None else room.num_free


def read_checkpoint(folder: Path) -> None:
    """Open a checkpoint's files."""
    fields = hub.read_config(str(folder)) or {}
    tokenizer = FastTokenizer.from_folder(folder)
    checkpoint = Checkpoint(THEIRS, folder, mask_id=tokenizer.id_of("<|mdm_mask|>"))
    attention = Varying(names={"block": BlockCausal(4)}, otherwise=Bidirectional())
    print(architectures(fields), attention, checkpoint.folder, tokenizer.decode(np.arange(3)))


def open_checkpoint(checkpoint: Checkpoint) -> Reader:
    """Return its reader, on the engine that the options name."""
    return load_reader(checkpoint, EngineConfig(engine="transformers", device="cpu"))


def calibrated(path: Path, catalog: Catalog) -> LLM:
    """Return a model that tells the probability of being right."""
    calibration = Calibration.load(path)
    print(calibration.probability(-0.1), calibration.abstains(-0.1), calibration.threshold)
    return LLM("countdown", calibration=calibration, catalog=catalog, dtype="float32")


def main() -> None:
    """Run all that needs no other file."""
    print(dise.__version__)
    check_plugin()
    with LLM("countdown", device="cpu") as llm:
        generate(llm)
        score(llm)
        decide(llm)
        fail(llm)
        print(llm, sorted(llm.catalog.scorers))
    asyncio.run(serve())
    embed()


if __name__ == "__main__":
    main()
