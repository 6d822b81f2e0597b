"""POST /v1/score and /v1/rank."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request

from dise_app.server import answers
from dise_app.server.schemas.requests import RankRequest, ScoreRequest
from dise_app.server.service import Service
from dise_core import RequestOutput
from dise_core.records import Record


def add_scores(app: FastAPI, service: Service) -> None:
    """Add the routes that score given texts."""

    @app.post("/v1/score")
    async def score(body: ScoreRequest, request: Request) -> Record:
        params = service.scoring(body)
        prompts = [body.prompt] * len(body.responses)
        work = service.llm.score(
            prompts, body.responses, params, chat=body.chat, finished=body.finished
        )
        results = await service.run(work, request)
        data = [
            answer.to_dict()["outputs"][0] | {"index": index}
            for index, answer in enumerate(results)
        ]
        return _listed(data, results)

    @app.post("/v1/rank")
    async def rank(body: RankRequest, request: Request) -> Record:
        params = service.scoring(body)
        work = service.llm.rank([body.prompt], [body.candidates], params, chat=body.chat)
        [answer] = await service.run(work, request)
        return _listed(answer.to_dict()["outputs"], [answer])

    def _listed(data: list[Record], results: Sequence[RequestOutput]) -> Record:
        return {
            "object": "list",
            "model": service.model,
            "data": data,
            "usage": answers.usage(results),
            "dise": answers.cost(results),
        }
