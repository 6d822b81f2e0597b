"""POST /v1/score and /v1/rank."""

from collections.abc import Sequence

from fastapi import FastAPI, Request

from dise_app.server.answers import JsonObject, cost, usage
from dise_app.server.schemas.requests import RankRequest, ScoreRequest
from dise_app.server.service import Service
from dise_core import RequestOutput


def add_scores(app: FastAPI, service: Service) -> None:
    """Add the routes that score given texts."""

    @app.post("/v1/score")
    async def score(body: ScoreRequest, request: Request) -> JsonObject:
        params = service.scoring(body)
        prompts, texts = [body.prompt] * len(body.responses), body.responses
        work = service.llm.score(prompts, texts, params, chat=body.chat, finished=body.finished)
        results = await service.run(work, request)
        outputs = enumerate(result.to_dict()["outputs"][0] for result in results)
        return _listed([output | {"index": index} for index, output in outputs], results)

    @app.post("/v1/rank")
    async def rank(body: RankRequest, request: Request) -> JsonObject:
        params = service.scoring(body)
        work = service.llm.rank([body.prompt], [body.candidates], params, chat=body.chat)
        [answer] = await service.run(work, request)
        return _listed(answer.to_dict()["outputs"], [answer])

    def _listed(data: list[JsonObject], results: Sequence[RequestOutput]) -> JsonObject:
        return {
            "object": "list",
            "model": service.model,
            "data": data,
            "usage": usage(results),
            "dise": cost(results),
        }
