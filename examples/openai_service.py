"""A web service that answers with the OpenAI SDK; all its requests share one gate.

    headgate mock --provider openai --rate 600/min --port 8080
    python openai_service.py
    curl -d '{"question": "How high is the water?"}' http://127.0.0.1:8000/ask

Requests wait for the model's limit instead of failing with 429. One that would wait longer than 30 s gets a 503 with
Retry-After at once. GET /health says what the gate has learned.
"""

import os

from aiohttp import web

import headgate

API = os.environ.get("API", "http://127.0.0.1:8080") + "/openai/v1"
PASSING = web.AppKey("passing", headgate.Passing)
CLIENT = web.AppKey("client", object)


async def ask(request: web.Request) -> web.Response:
    question = (await request.json())["question"]
    try:
        answer = await request.app[CLIENT].chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": question}]
        )
    except Exception as error:
        refusal = error.__cause__  # the SDK wraps what the gate raises
        if not isinstance(refusal, headgate.Refused):
            raise
        headers = {"Retry-After": str(round(refusal.retry_after or 1))}
        return web.json_response({"error": refusal.reason}, status=503, headers=headers)
    return web.json_response({"answer": answer.choices[0].message.content})


async def health(request: web.Request) -> web.Response:
    keys = request.app[PASSING].limiter.snapshot().keys
    return web.json_response([{"key": one.key, "rate": one.rate, "why": one.reason} for one in keys])


async def client(app: web.Application):
    app[PASSING] = headgate.Passing(max_wait=30)
    app[CLIENT] = headgate.async_openai_client(
        base_url=API, api_key=os.environ.get("OPENAI_API_KEY", "any-key"), passing=app[PASSING]
    )
    yield
    await app[CLIENT].close()
    app[PASSING].close()


def service() -> web.Application:
    app = web.Application()
    app.add_routes([web.post("/ask", ask), web.get("/health", health)])
    app.cleanup_ctx.append(client)
    return app


if __name__ == "__main__":
    web.run_app(service(), host="127.0.0.1", port=8000)
