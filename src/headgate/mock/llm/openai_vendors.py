"""Vendors that take OpenAI's requests: each is a description, and differs in paths, errors, counting and scope.

| vendor       | key               | tokens at admission           | calls judged over | scope                       |
|--------------|-------------------|-------------------------------|-------------------|-----------------------------|
| openai       | bearer            | larger of max_tokens, prompt  | their window      | project, model              |
| azure-openai | api-key or bearer | prompt + max_tokens x best_of | 10 s              | organization, deployment    |
| groq         | bearer            | prompt + max_tokens; cached   | their window      | organization, model, tier   |
|              |                   | tokens are given back         |                   |                             |
| mistral      | bearer            | prompt; the answer as written | 1 s               | organization                |

| trouble      | openai                        | azure-openai       | groq                     | mistral               |
|--------------|-------------------------------|--------------------|--------------------------|-----------------------|
| unauthorized | 401 invalid_api_key           | 401 401            | 401 invalid_api_key      | 401                   |
| not_found    | 404 model_not_found           | 404 DeploymentNo.. | 404 model_not_found      | 400 invalid_model     |
| quota        | 429 insufficient_quota        | 429 insufficient.. | 400 blocked_api_access   | 401, as a wrong key   |
| spend        | 429 organization_spend_..     | the same           | 400 blocked_api_access   | the same              |
| capacity     | 429 resource_unavailable      | 429 resource_una.. | 498 capacity_exceeded    | 503                   |
| never fits   | 429 with the numbers          | 429                | 413 with the numbers     | 429                   |

OpenAI and Groq tell the numbers of a limit in the message: ``Limit 30000, Used 15532, Requested 14655``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..api import Reply
from ..dialects import DIALECTS
from ..dialects.chat import refuse_as_azure, refuse_as_mistral
from ..dialects.dialect import DAY, HOUR, MINUTE, ROUNDING, go_duration, wait_of, whole_seconds
from ..providers.provider_api import MockRequest
from ..quota import LimitStatus
from .language_api import (
    ApiError,
    Counting,
    LanguageApi,
    Refusal,
    RejectedError,
    Scope,
    Stamp,
    allowed,
    bearer,
    larger,
    prompt,
)
from .openai import ChatCompletion, Embeddings, Response

_REQUEST = "invalid_request_error"
_NO_MODEL = "The model `mock` does not exist or you do not have access to it."
_TOO_LONG = "Your input exceeds the context window of this model."

# ---------------------------------------------------------------------- the numbers of a limit

_LEARN = "Visit https://platform.openai.com/account/rate-limits to learn more."


def _openai_limit(refusal: Refusal, model: str, organization: str) -> Reply:
    """A 429, even where the call can never fit: the numbers tell."""
    message = _limit_message(refusal, f"for {model} in organization {organization} on", "min")
    return Reply(
        429, _openai_body(ApiError(429, f"{message} {_LEARN}", _counted(refusal), "rate_limit_exceeded"), None)
    )


def _groq_limit(refusal: Refusal, model: str, organization: str) -> Reply:
    where = f"for model `{model}` in organization `{organization}` service tier `on_demand` on"
    error = ApiError(429, _limit_message(refusal, where, "minute"), _counted(refusal), "rate_limit_exceeded")
    if refusal.trouble == "too_large":
        return Reply(413, _groq_body(error, None))
    return Reply(429, _groq_body(error, None), {"retry-after": str(whole_seconds(refusal.status.retry))})


def _counted(refusal: Refusal) -> str:
    return "requests" if refusal.unit == "calls" else "tokens"


def _limit_message(refusal: Refusal, where: str, minute: str) -> str:
    status, per = refusal.status, DAY if refusal.trouble == "daily" else MINUTE
    limit, used = _told(status, per)
    counted = _counted(refusal)
    sign = f"{counted[0].upper()}P{'D' if per == DAY else 'M'}"
    about = f"{where} {counted} per {'day' if per == DAY else minute} ({sign}): Limit {limit}"
    if refusal.trouble == "too_large":
        reduce = "The input or output tokens must be reduced in order to run successfully."
        return f"Request too large {about}, Requested {refusal.requested}. {reduce}"
    wait = f"Please try again in {_wait(wait_of(status))}."
    return f"Rate limit reached {about}, Used {used}, Requested {refusal.requested}. {wait}"


def _told(status: LimitStatus, per: float) -> tuple[int, int]:
    """Limit and used, told for so many seconds; what is left is never more than really is."""
    limit = int(status.limit * (per / status.window if status.window else 1.0) + ROUNDING)
    return limit, max(0, limit - int(status.remaining + ROUNDING))


def _wait(seconds: float) -> str:
    """Never a moment too short, and from an hour on with the hours."""
    seconds = math.ceil(seconds * 1000 - ROUNDING) / 1000
    hours, rest = divmod(seconds, HOUR)
    if not hours:
        return go_duration(seconds)
    minutes, rest = divmod(rest, MINUTE)
    return f"{hours:.0f}h{minutes:.0f}m{round(rest, 3):g}s"


# ---------------------------------------------------------------------- OpenAI


def _openai_body(error: ApiError, param: str | None) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.kind, "param": param, "code": error.code}}


def _sign_openai(reply: Reply, stamp: Stamp, model: str) -> Reply:
    headers = {
        "x-request-id": f"req_{stamp.token}",
        "openai-organization": stamp.organization,
        "openai-project": stamp.project,
        "openai-version": "2020-10-01",
    }
    return replace(reply, headers=headers | reply.headers)


OPENAI = LanguageApi(
    name="openai",
    root="/v1",
    endpoints={"/chat/completions": ChatCompletion, "/responses": Response, "/embeddings": Embeddings},
    dialect=DIALECTS["openai"],
    key_of=bearer,
    sign=_sign_openai,
    counting=Counting(admission=larger),
    scope=Scope(owner="project"),
    limit_reached=_openai_limit,
    error_body=_openai_body,
    errors={
        "unauthorized": ApiError(401, "Incorrect API key provided.", _REQUEST, "invalid_api_key"),
        "forbidden": ApiError(
            403,
            "Country, region, or territory not supported",
            "request_forbidden",
            "unsupported_country_region_territory",
        ),
        "invalid": ApiError(400, "The request is not valid.", _REQUEST),
        "too_long": ApiError(400, _TOO_LONG, _REQUEST, "context_length_exceeded"),
        "not_found": ApiError(404, _NO_MODEL, _REQUEST, "model_not_found"),
        "too_large": ApiError(413, "The request body is too large.", _REQUEST, "request_too_large"),
        "quota": ApiError(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            "insufficient_quota",
            "insufficient_quota",
        ),
        "spend": ApiError(
            429,
            "Your organization has reached its spend limit; raise it in the billing settings.",
            "insufficient_quota",
            "organization_spend_limit_exceeded",
        ),
        "capacity": ApiError(429, "Resource Unavailable", "resource_unavailable", "resource_unavailable"),
        "server_error": ApiError(500, "The server had an error while processing your request.", "server_error"),
        "unavailable": ApiError(503, "The service is temporarily unavailable.", "server_error"),
        "overloaded": ApiError(503, "The engine is currently overloaded, please try again later", "server_error"),
    },
)

# ---------------------------------------------------------------------- Azure OpenAI


def _azure_body(error: ApiError, param: str | None) -> dict[str, Any]:
    """Its gateway's own errors have a code and a message; those of the model are OpenAI's."""
    if error.kind:
        return _openai_body(error, param)
    return {"error": {"code": error.code or str(error.status), "message": error.message}}


def _azure_key(asked: MockRequest) -> str:
    return asked.headers.get("api-key", "") or asked.bearer


def _has_version(asked: MockRequest) -> None:
    if "/openai/v1/" not in asked.path and "api-version" not in asked.query:
        raise RejectedError("no_version", "")


def _sign_azure(reply: Reply, stamp: Stamp, model: str) -> Reply:
    headers = {"apim-request-id": stamp.token, "x-ms-region": "Mock", "x-ms-deployment-name": model}
    return replace(reply, headers=headers | reply.headers)


AZURE_OPENAI = LanguageApi(
    name="azure-openai",
    endpoints={
        "/openai/deployments/{model}/chat/completions": ChatCompletion,
        "/openai/deployments/{model}/embeddings": Embeddings,
        "/openai/v1/chat/completions": ChatCompletion,
        "/openai/v1/responses": Response,
        "/openai/v1/embeddings": Embeddings,
    },
    dialect=DIALECTS["azure-openai"],
    key_of=_azure_key,
    check=_has_version,
    sign=_sign_azure,
    counting=Counting(admission=allowed, calls_within=10.0),
    scope=Scope(owner="organization"),
    limit_reached=lambda refusal, model, organization: refuse_as_azure(refusal.unit, refusal.status, 0.0),
    error_body=_azure_body,
    errors=dict(OPENAI.errors)
    | {
        "unauthorized": ApiError(401, "Access denied due to invalid subscription key or wrong API endpoint."),
        "forbidden": ApiError(403, "Access denied due to Virtual Network/Firewall rules."),
        "no_version": ApiError(404, "Resource not found"),
        "not_found": ApiError(404, "The API deployment for this resource does not exist.", code="DeploymentNotFound"),
        "server_error": ApiError(
            500, "The server had an error while processing your request.", code="InternalServerError"
        ),
        "unavailable": ApiError(503, "The service is temporarily unable to process your request."),
        "overloaded": ApiError(503, "The service is temporarily unable to process your request."),
    },
)

# ---------------------------------------------------------------------- Groq


def _groq_body(error: ApiError, param: str | None) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.kind} | ({"code": error.code} if error.code else {})}


def _sign_groq(reply: Reply, stamp: Stamp, model: str) -> Reply:
    headers = {"x-request-id": f"req_{stamp.token}", "x-groq-region": "mock"}
    body = reply.body
    if isinstance(body, dict) and "usage" in body:
        body = body | {"x_groq": {"id": f"req_{stamp.token}"}}
    return replace(reply, body=body, headers=headers | reply.headers)


_BLOCKED = ApiError(
    400, "API access is blocked: the organization has reached its spend limit.", _REQUEST, "blocked_api_access"
)

GROQ = LanguageApi(
    name="groq",
    root="/openai/v1",
    endpoints={"/chat/completions": ChatCompletion, "/responses": Response},
    dialect=DIALECTS["groq"],
    key_of=bearer,
    sign=_sign_groq,
    counting=Counting(admission=allowed, cached_is_free=True),
    scope=Scope(per_tier=True),
    tells_day=True,
    limit_reached=_groq_limit,
    error_body=_groq_body,
    errors={
        "unauthorized": ApiError(401, "Invalid API Key", _REQUEST, "invalid_api_key"),
        "forbidden": ApiError(403, "Access denied. Please check your network settings.", "permission_error"),
        "invalid": ApiError(400, "The request is not valid.", _REQUEST),
        "too_long": ApiError(400, _TOO_LONG, _REQUEST, "context_length_exceeded"),
        "not_found": ApiError(404, _NO_MODEL, _REQUEST, "model_not_found"),
        "too_large": ApiError(413, "Request Entity Too Large", _REQUEST, "request_too_large"),
        "quota": _BLOCKED,
        "spend": _BLOCKED,
        "capacity": ApiError(498, "The flex tier has no capacity; try again later.", "flex_tier", "capacity_exceeded"),
        "server_error": ApiError(500, "Internal Server Error", "internal_server_error"),
        "unavailable": ApiError(503, "Service Unavailable", "service_unavailable"),
        "overloaded": ApiError(503, "The model is over capacity; try again later.", "service_unavailable"),
    },
)

# ---------------------------------------------------------------------- Mistral


def _mistral_body(error: ApiError, param: str | None) -> dict[str, Any]:
    if error.status == 401:
        return {"detail": error.message}
    return {"object": "error", "message": error.message, "type": error.kind, "param": None, "code": error.code}


def _takes_max_tokens(asked: MockRequest) -> None:
    if isinstance(asked.body, dict) and "max_completion_tokens" in asked.body:
        raise RejectedError("invalid", "max_completion_tokens: Extra inputs are not permitted")


def _sign_mistral(reply: Reply, stamp: Stamp, model: str) -> Reply:
    headers = {"x-kong-request-id": stamp.token}
    if isinstance(reply.body, dict) and isinstance(usage := reply.body.get("usage"), dict):
        headers["x-ratelimit-tokens-query-cost"] = str(usage.get("total_tokens", 0))
    return replace(reply, headers=headers | reply.headers)


_UNAUTHORIZED = ApiError(401, "Unauthorized")

MISTRAL = LanguageApi(
    name="mistral",
    root="/v1",
    endpoints={"/chat/completions": ChatCompletion, "/embeddings": Embeddings},
    dialect=DIALECTS["mistral"],
    key_of=bearer,
    check=_takes_max_tokens,
    sign=_sign_mistral,
    counting=Counting(admission=prompt, produced=("tokens", "output_tokens"), calls_within=1.0),
    scope=Scope(per_model=False),
    limit_reached=lambda refusal, model, organization: refuse_as_mistral(refusal.unit, refusal.status, 0.0),
    error_body=_mistral_body,
    errors={
        "unauthorized": _UNAUTHORIZED,
        "forbidden": ApiError(403, "You are not allowed to use this model.", "forbidden"),
        "invalid": ApiError(422, "The request is not valid.", _REQUEST),
        "too_long": ApiError(400, _TOO_LONG, _REQUEST, "3051"),
        "not_found": ApiError(400, "Invalid model: mock", "invalid_model", "1500"),
        "too_large": ApiError(413, "Request body is too large.", _REQUEST),
        "quota": _UNAUTHORIZED,
        "spend": _UNAUTHORIZED,
        "capacity": ApiError(503, "Service tier capacity exceeded for this model.", _REQUEST),
        "server_error": ApiError(500, "Internal server error.", "internal_server_error", "1000"),
        "unavailable": ApiError(503, "Service unavailable.", "service_unavailable"),
        "overloaded": ApiError(503, "Service tier capacity exceeded for this model.", "service_unavailable"),
    },
)
