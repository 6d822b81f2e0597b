"""A pass and a whole answer beside llama.cpp's, from one GGUF file of random weights in LLaDA's
format.

python benchmarks/beside_llama_cpp.py [--size 141M|1B|8B] [--types F16 Q8_0 Q4_0] [--rounds 5]
    [--apart] [--answers [--blocks 4]]

`make peers` runs it in an environment of its own. llama.cpp runs as its diffusion example does:
causal attention off, the whole text in each step, all logits; a batch is one of sequences. Each
engine has a process of its own, and they take turns, or run one after the other (--apart) where a
file does not fit into memory twice; times are medians. Memory is what a process has grown by since
before it loaded the model. Only `llama_decode` counts of llama.cpp's pass, and of ours once int8 is
packed. --dtype is our type for what it calls otherwise: bfloat16 for F16 where the processor
multiplies float16 slowly, as a warning says.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command import EndedError, Parser, Worker, head, pack, resident, row

PROMPT, NUM_TOKENS = 64, 30000
"""Tokens of a prompt, and those that texts are drawn from."""

SIZES = {
    "141M": (768, 2304, 12, 32000), "1B": (2048, 6144, 16, 32000),
    "8B": (4096, 12288, 32, 126464), "tiny": (64, 192, 2, 32000),
}  # fmt: skip
"""Width, inner width, layers and vocabulary; 8B is LLaDA-8B's. The last two tokens are the end
and the mask.
"""

OURS: dict[str, dict[str, Any]] = {
    "F32": {"dtype": "float32"},
    "F16": {"dtype": "float16"},
    "BF16": {"dtype": "bfloat16"},
    "Q8_0": {"dtype": "float32", "quantization": "int8"},
    "Q4_0": {"dtype": "float32", "quantization": "int4"},
}
"""Our options for each type of weights."""

ANSWER: dict[str, Any] = {"max_tokens": 128, "steps": 64, "block_length": 32, "scorer": "written"}


def write_gguf(path: Path, size: tuple[int, int, int, int], kind: str) -> None:
    """Write a model whose weights are drawn from seed 0, with matrices of that type; all layers
    have the same.
    """
    import gguf
    from tokenizers.pre_tokenizers import ByteLevel

    width, inner, layers, vocabulary = size
    end, mask = vocabulary - 2, vocabulary - 1
    writer, random = gguf.GGUFWriter(path, "llada"), np.random.default_rng(0)
    numbers = {
        "embedding_length": width, "block_count": layers, "attention.head_count": width // 64,
        "feed_forward_length": inner, "context_length": 4096, "vocab_size": vocabulary,
    }  # fmt: skip
    for name, number in numbers.items():
        writer.add_uint32(f"llada.{name}", number)
    writer.add_float32("llada.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llada.rope.freq_base", 500000.0)
    writer.add_bool("llada.attention.causal", False)
    writer.add_bool("diffusion.shift_logits", False)
    letters = sorted(ByteLevel.alphabet())
    pairs = [(one, other) for one in letters for other in letters][: end - len(letters)]
    unused = [f"<|{number}|>" for number in range(end - len(letters) - len(pairs))]
    tokens = [*letters, *map("".join, pairs), *unused, "<|end|>", "<|mask|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("bailingmoe")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * end + [3, 3])
    writer.add_token_merges(list(map(" ".join, pairs)))
    for role, token in (("bos", end), ("eos", end), ("mask", mask)):
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", token)
    of, ends = gguf.GGMLQuantizationType[kind], ("token_embd", "output")
    shapes = dict.fromkeys(ends, (vocabulary, width))
    shapes |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (width, width))
    shapes |= {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
    for name, shape in shapes.items():
        weight = random.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
        rounded = gguf.quantize(weight, of)
        for place in [name] if name in ends else [f"blk.{n}.{name}" for n in range(layers)]:
            writer.add_tensor(f"{place}.weight", rounded, raw_dtype=of)
    norms = [f"blk.{n}.{name}_norm" for n in range(layers) for name in ("attn", "ffn")]
    for name in [*norms, "output_norm"]:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def texts(prompts: int, tokens: int) -> np.ndarray:
    """Return the same token ids in every process, int64 [prompts, tokens]."""
    return np.random.default_rng(1).integers(0, NUM_TOKENS, (prompts, tokens))


@dataclass
class Ours:
    """This project."""

    path: str
    kind: str
    dtype: str | None

    @property
    def options(self) -> dict[str, Any]:
        """Our options for the type."""
        return OURS[self.kind] | ({"dtype": self.dtype} if self.dtype else {})

    def load(self) -> None:
        """Load the model."""
        from dise_core import LLM

        self.llm = LLM(self.path, **self.options)
        if self.kind == "Q8_0":
            pack(self.llm)

    def one_pass(self, prompts: int, tokens: int) -> dict[str, Any]:
        """Return the seconds of a pass, and the log-probabilities of the first text's tokens."""
        from dise_core import Read, TokenLogProbs

        every = np.arange(tokens)
        reads = [Read(ids, every, TokenLogProbs(ids)) for ids in texts(prompts, tokens)]
        started = time.perf_counter()
        readings = self.llm.predictor.read(reads)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "logprobs": readings[0].logprobs.tolist()}

    def prepare(self) -> None:
        """Import what a model will need."""
        from dise_core import LLM

        LLM("countdown", **self.options).score("", "1+2=3")

    def answer(self, prompts: int, cache: str) -> dict[str, Any]:
        """Return the seconds of whole answers, and their tokens."""
        from dise_core import SamplingParams

        asked = [ids.tolist() for ids in texts(prompts, PROMPT)]
        started = time.perf_counter()
        outputs = self.llm.generate(asked, SamplingParams(**ANSWER, cache=cache))
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "tokens": [list(o.outputs[0].token_ids) for o in outputs]}


@dataclass
class Theirs:
    """llama.cpp, by its low-level interface."""

    path: str
    kind: str
    dtype: str | None

    def prepare(self) -> None:
        """Import what a model will need."""
        import llama_cpp

        self.lib: Any = llama_cpp

    def load(self) -> None:
        """Load the model, into memory of the process as ours."""
        llama_cpp = self.lib
        silent = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        self.kept = silent
        params = llama_cpp.llama_model_default_params()
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        self.model = llama_cpp.llama_model_load_from_file(self.path.encode(), params)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.num_tokens = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.mask = llama_cpp.llama_vocab_mask(vocabulary)
        self.contexts: dict[tuple[int, int], Any] = {}

    def decode(self, ids: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the seconds of a pass over texts [B, N], and their logits [B, N, V]."""
        context, batch = self._context(ids.shape)
        for place, token in enumerate(ids.ravel().tolist()):
            batch.token[place] = token
        started = time.perf_counter()
        failed = self.lib.llama_decode(context, batch)
        logits = self.lib.llama_get_logits(context)
        seconds = time.perf_counter() - started
        assert not failed
        return seconds, np.ctypeslib.as_array(logits, (*ids.shape, self.num_tokens))

    def _context(self, shape: tuple[int, int]) -> Any:
        """Return a context for texts of that shape, and a batch that reads all of them."""
        if shape not in self.contexts:
            count, tokens = shape
            params = self.lib.llama_context_default_params()
            params.n_ctx = params.n_batch = params.n_ubatch = count * tokens
            params.n_seq_max, params.kv_unified = count, True
            params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
            context = self.lib.llama_init_from_model(self.model, params)
            self.lib.llama_set_causal_attn(context, False)
            batch = self.lib.llama_batch_init(count * tokens, 0, 1)
            batch.n_tokens = count * tokens
            for place in range(count * tokens):
                batch.pos[place], batch.n_seq_id[place] = place % tokens, 1
                batch.seq_id[place][0], batch.logits[place] = place // tokens, True
            self.contexts = {shape: (context, batch)}
        return self.contexts[shape]

    def one_pass(self, prompts: int, tokens: int) -> dict[str, Any]:
        """Return the seconds of a pass, and the log-probabilities of the first text's tokens."""
        ids = texts(prompts, tokens)
        seconds, logits = self.decode(ids)
        first = logits[0].astype(np.float64)
        first -= np.log(np.exp(first).sum(-1, keepdims=True))
        logprobs = first[np.arange(tokens), ids[0]]
        return {"seconds": seconds, "logprobs": logprobs.tolist()}

    def answer(self, prompts: int, blocks: int) -> dict[str, Any]:
        """Return the seconds of whole answers, and the tokens of their first blocks: only those are
        written, the surest tokens first, since every step takes the same time.
        """
        size, num_blocks = ANSWER["block_length"], ANSWER["max_tokens"] // ANSWER["block_length"]
        steps = ANSWER["steps"] // num_blocks
        masks = np.full((prompts, ANSWER["max_tokens"]), self.mask)
        canvas = np.concatenate([texts(prompts, PROMPT), masks], axis=1)
        started = time.perf_counter()
        for block in range(blocks):
            columns = slice(PROMPT + block * size, PROMPT + (block + 1) * size)
            for _ in range(steps):
                logits = self.decode(canvas)[1]
                for text, scores in zip(canvas, logits, strict=True):
                    commit(text[columns], scores[columns], size // steps, self.mask)
        seconds = (time.perf_counter() - started) * num_blocks / blocks
        return {"seconds": seconds, "tokens": canvas[:, PROMPT : columns.stop].tolist()}


def commit(block: np.ndarray, logits: np.ndarray, count: int, mask: int) -> None:
    """Write the surest tokens in place of as many masks of a block [N]. logits: [N, V]."""
    masked = np.flatnonzero(block == mask)
    scores = logits[masked]
    scores[:, mask] = -np.inf
    best = scores.argmax(-1)
    top = np.take_along_axis(scores, best[:, None], -1)
    confidence = 1 / np.exp(scores - top).sum(-1)
    chosen = np.argsort(-confidence, kind="stable")[:count]
    block[masked[chosen]] = best[chosen]


def serve(engine: type[Ours] | type[Theirs], *of: Any) -> None:
    """Answer the questions of standard input. of: the engine's fields."""
    served = engine(*of)
    served.prepare()
    before = resident("RssAnon")
    served.load()
    for line in sys.stdin:
        way, *arguments = json.loads(line)
        answer = getattr(served, way)(*arguments)
        memory = resident("RssAnon") - before
        print("answer", json.dumps({**answer, "memory": memory}), flush=True)


def turns(workers: dict[str, Worker], rounds: int, *question: Any) -> dict[str, dict[str, Any]]:
    """Return the engines' last answers with their median times; where there are several rounds,
    the first is not counted.
    """
    answers = [{name: asked(workers, name, *question) for name in workers} for _ in range(rounds)]
    counted = answers[1:] or answers
    return {
        name: {**last, "seconds": statistics.median(of[name]["seconds"] for of in counted)}
        for name, last in answers[-1].items()
    }


def asked(workers: dict[str, Worker], name: str, *question: Any) -> Any:
    """Return an engine's answer. Raises EndedError with its name."""
    try:
        return workers[name].ask(*question)
    except EndedError as error:
        engine = "llama.cpp" if name == "theirs" else "DiSE"
        raise EndedError(f"{engine}: {error}") from error


def main() -> None:
    """Print the tables."""
    parser = Parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="141M")
    parser.add_argument("--types", nargs="+", choices=OURS, default=["F16", "BF16", "Q8_0", "Q4_0"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--prompts", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--apart", action="store_true", help="one engine after the other")
    parser.add_argument("--answers", action="store_true", help="write whole answers too")
    parser.add_argument("--blocks", type=int, default=4, help="of an answer that llama.cpp writes")
    parser.add_argument("--caches", nargs="+", default=["none", "prefix", "dual"])
    parser.add_argument("--dtype", help="our type, in place of the file's")
    parser.add_argument("--engine", choices=("ours", "theirs"))
    parser.add_argument("--path")
    parser.add_argument("kind", nargs="?")
    args = parser.options(size="tiny", types=["F32"], tokens=[16], prompts=[1], rounds=1)
    if args.answers and args.apart:
        parser.error("give either --answers or --apart: answers are compared side by side")
    if args.engine:
        engine = Ours if args.engine == "ours" else Theirs
        return serve(engine, args.path, args.kind, args.dtype)
    head("type", "what, prompts", "llama.cpp, ms", "ours, ms", "ratio", "llama.cpp, MiB",
         "ours, MiB", "difference")  # fmt: skip
    for kind in args.types:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write_gguf(path, SIZES[args.size], kind)
            dtype = [f"--dtype={args.dtype}"] if args.dtype else []
            command = {
                name: (__file__, "--engine", name, "--path", str(path), *dtype, kind)
                for name in ("theirs", "ours")
            }
            try:
                compare(command, f"{kind} in {args.dtype}" if args.dtype else kind, args)
            except EndedError as error:
                row(kind, str(error))


def compare(command: dict[str, tuple[str, ...]], kind: str, args: Any) -> None:
    """Print the rows of a type. command: that of each engine's process."""
    shapes = [(prompts, tokens) for prompts in args.prompts for tokens in args.tokens]
    answers: dict[tuple[int, int], dict[str, Any]] = {shape: {} for shape in shapes}
    for names in [[name] for name in command] if args.apart else [list(command)]:
        with ExitStack() as stack:
            workers = {name: Worker(*command[name]) for name in names}
            for worker in workers.values():
                stack.callback(worker.close)
            for prompts, tokens in shapes:
                both = answers[prompts, tokens]
                both.update(turns(workers, args.rounds + 1, "one_pass", prompts, tokens))
                if len(both) == len(command):
                    first, other = (both[name]["logprobs"] for name in command)
                    difference = np.abs(np.subtract(first, other)).mean()
                    what = f"pass, {prompts} x {tokens}"
                    show(kind, what, *both.values(), f"{difference:.4f} nats")
            if args.answers:
                compare_answers(workers, kind, args)


def compare_answers(workers: dict[str, Worker], kind: str, args: Any) -> None:
    """Print the rows of whole answers."""
    for prompts in args.prompts:
        theirs = asked(workers, "theirs", "answer", prompts, args.blocks)
        tokens = np.array(theirs["tokens"])
        for cache in args.caches:
            ours = asked(workers, "ours", "answer", prompts, cache)
            same = np.equal(np.array(ours["tokens"])[:, : tokens.shape[1]], tokens).mean()
            show(kind, f"answers, {prompts}, cache {cache}", theirs, ours, f"{same:.0%} same")


def show(kind: str, what: str, theirs: dict[str, Any], ours: dict[str, Any], same: str) -> None:
    """Print a row."""
    times = (theirs["seconds"] * 1e3, ours["seconds"] * 1e3)
    row(kind, what, *(f"{time:.0f}" for time in times), f"{times[1] / times[0]:.2f}",
        f"{theirs['memory']:.0f}", f"{ours['memory']:.0f}", same)  # fmt: skip


if __name__ == "__main__":
    main()
