"""The gate inside of the clients a program already uses: one line in front of each, and nothing else changes.

client_gate      the settings of one gate, where each request begins, and refusals as the client's own errors
gated_request    one request on its way: the seam that every client uses
request          a request as the gate sees it: its key, what it takes of the limits, whether it may be sent twice
response_reader  what its response says while it is read
fallback         how it looks at another target, and when it goes there
origins          which credential goes to which origin, and which headers must not follow a redirect
host_manager     all hosts of a gate, and the tokens that their calls take

Each client has a file of its own (``httpx2``, ``httpx``, ``aiohttp``, ``urllib3``, ``requests``, ``scrapy``,
``langchain``; ``openai`` and ``anthropic`` build on ``httpx2``), which imports its library when it is imported itself.
"""
