"""DiffusionGemma on vLLM, behind `dise serve --model http://HOST:8000 --port 8001`."""

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8001/v1", api_key="none")
answer = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[{"role": "user", "content": "Why is the sky blue?"}],
    n=3,
)
for choice in answer.choices:  # best score first
    print(choice.dise["score"]["value"], choice.message.content)
