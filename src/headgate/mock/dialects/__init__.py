"""How a mock API states its quota: the header fields and error bodies of real vendors.

| dialect          | every answer                                   | a refusal (429), and its body               |
|------------------|------------------------------------------------|---------------------------------------------|
| none             | -                                              | a bare message                              |
| retry-after      | -                                              | Retry-After, in seconds                     |
| retry-after-date | -                                              | Retry-After, as a date                      |
| ratelimit        | RateLimit-Limit, -Remaining, -Reset, -Policy   | the same                                    |
| x-ratelimit      | X-RateLimit-*, every window in one list        | the same                                    |
| ietf             | RateLimit, RateLimit-Policy                    | and Retry-After, a problem document         |
| ietf-one-field   | RateLimit: limit=, remaining=, reset=          | and Retry-After                             |
| openai           | x-ratelimit-*, per minute                      | the wait in words                           |
| azure-openai     | the same with its renewal period               | and retry-after, retry-after-ms             |
| anthropic        | anthropic-ratelimit-*, per minute              | and retry-after                             |
| gemini           | -                                              | QuotaFailure and RetryInfo, in the body     |
| mistral          | x-ratelimit-*-minute, without a reset          | the same                                    |
| groq             | x-ratelimit-*, calls per day                   | and retry-after, the wait in words          |
| openrouter       | X-RateLimit-Limit, -Reset in epoch ms          | the same once more, in the body             |
| tavily           | -                                              | retry-after                                 |
| google-search    | -                                              | the limit's name, in the body               |
| perplexity       | -                                              | a bare message                              |
| semantic-scholar | -                                              | a bare message                              |
| github           | x-ratelimit-*, per hour, epoch resets          | the same, remaining 0                       |
| github-secondary | the same, of a limit that is never reached     | 403 and a message: the secondary limit      |
| gitlab           | RateLimit-*, epoch resets                      | and Retry-After                             |
| reddit           | X-Ratelimit-Used, -Remaining, -Reset, 10 min   | the same                                    |
| slack            | -                                              | Retry-After                                 |
| discord          | X-RateLimit-*, seconds with fractions          | and Retry-After, retry_after in the body    |
| shopify          | X-Shopify-Shop-Api-Call-Limit: 32/40           | and Retry-After: 2.0                        |
| stripe           | -                                              | Stripe-Rate-Limited-Reason                  |
| cloudflare       | Ratelimit, Ratelimit-Policy                    | and retry-after                             |

In an outage most answer 503, Anthropic 529, and OpenRouter 200 with the error inside. A vendor that always states a
minute, an hour or a day does so here too: a quota of 50/s is announced as 3000 or 180000. What they say is left
is never more than really is: of a bucket that holds 50, at most 50. (Only Groq's day and GitHub's primary limit
are budgets beside the one that refuses.)

To add a vendor:

1. Write its fields and its refusal in ``chat`` (language models) or ``platforms`` (all others), and make a ``Dialect``
   of them: what every answer announces, what a refusal says beside that, what an outage answers.
2. Add it to ``DIALECTS`` below, and a row to the table above and to the one in docs/scenarios.md.
3. Say what can be read from it in ``TABLE`` of ``tests/mock/test_dialects.py``, and whether a limiter can follow it
   without being refused in ``tests/lab/test_dialects.py``.

``wire/dialects`` reads what is written here: a vendor with words of its own needs its entry there first.
"""

from __future__ import annotations

from . import chat, dialect, platforms
from .dialect import Dialect, LimitStatuses

__all__ = ["DIALECTS", "Dialect", "LimitStatuses"]

DIALECTS: dict[str, Dialect] = {
    "none": dialect.NONE,
    "retry-after": dialect.RETRY_AFTER,
    "retry-after-date": dialect.RETRY_AFTER_DATE,
    "ratelimit": dialect.RATELIMIT,
    "x-ratelimit": dialect.X_RATELIMIT,
    "ietf": dialect.IETF,
    "ietf-one-field": dialect.IETF_ONE_FIELD,
    "openai": chat.OPENAI,
    "azure-openai": chat.AZURE_OPENAI,
    "anthropic": chat.ANTHROPIC,
    "gemini": platforms.GEMINI,
    "mistral": chat.MISTRAL,
    "groq": chat.GROQ,
    "openrouter": chat.OPENROUTER,
    "tavily": platforms.TAVILY,
    "google-search": platforms.GOOGLE_SEARCH,
    "perplexity": platforms.PERPLEXITY,
    "semantic-scholar": platforms.SEMANTIC_SCHOLAR,
    "github": platforms.GITHUB,
    "github-secondary": platforms.GITHUB_SECONDARY,
    "gitlab": platforms.GITLAB,
    "reddit": platforms.REDDIT,
    "slack": platforms.SLACK,
    "discord": platforms.DISCORD,
    "shopify": platforms.SHOPIFY,
    "stripe": platforms.STRIPE,
    "cloudflare": platforms.CLOUDFLARE,
}
