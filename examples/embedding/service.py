"""A service of one's own around AsyncLLM: many callers, one model, each answer only if the model is
sure enough.

python examples/embedding/service.py
"""

from __future__ import annotations

import asyncio

from dise_core import AsyncLLM, SamplingParams

PARAMS = SamplingParams(
    max_tokens=48, block_length=16, temperature=0.8, n=3, selector="response-text", seed=0
)


async def answer(llm: AsyncLLM, question: str, least: float, seconds: float = 30.0) -> str | None:
    """Return the surest of three answers, None if its score is below `least`. Raises TimeoutError
    after `seconds`.
    """
    async with asyncio.timeout(seconds):
        [result] = await llm.generate(question, PARAMS)
    best = result.outputs[0]
    return best.text if best.score.value >= least else None


async def serve(questions: list[str], least: float) -> list[str | None]:
    """Answer all questions at once; their forward passes share batches."""
    async with AsyncLLM("countdown") as llm:
        return await asyncio.gather(*(answer(llm, question, least) for question in questions))


def main() -> None:
    """Ask three questions."""
    questions = ["83,18,75 -> 10", "76,41,59 -> 24", "30,100,93 -> 23"]
    for question, text in zip(questions, asyncio.run(serve(questions, least=-1.0)), strict=True):
        print(f"{question:18s} {text or '(not sure enough)'}")


if __name__ == "__main__":
    main()
