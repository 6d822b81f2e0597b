"""uqlm's white-box scorers on a model that `dise serve` serves, through LangChain's ChatOpenAI.

uqlm needs an older transformers than DiSE: install it in an environment of its own.

pip install uqlm langchain-openai 'pyarrow<26'
python examples/uncertainty/with_uqlm.py http://127.0.0.1:8000/v1 "83,18,75 -> 10"
"""

from __future__ import annotations

import asyncio
import json
import sys

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from uqlm import WhiteBoxUQ

SCORERS = ["sequence_probability", "min_probability", "probability_margin"]


async def scored(url: str, prompts: list[str]) -> dict[str, list[object]]:
    """Return uqlm's table: the responses, and each scorer's value of each response in [0, 1].

    Messages instead of texts keep uqlm from adding a system prompt.
    """
    llm = ChatOpenAI(
        base_url=url,
        api_key="none",
        model="countdown",
        temperature=0,
        max_tokens=48,
        logprobs=True,
        extra_body={"dise": {"block_length": 16}},
    )
    uq = WhiteBoxUQ(llm, scorers=SCORERS, top_k_logprobs=2)
    result = await uq.generate_and_score(
        [[HumanMessage(prompt)] for prompt in prompts], show_progress_bars=False
    )
    return {name: result.data[name] for name in ("responses", *SCORERS)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scored(sys.argv[1], sys.argv[2:])), indent=2))
