"""Mock APIs on real sockets, for real clients: quotas counted exactly, refusals in the words of real vendors.

server ──> api          any path below /v1, one quota for each key
       ──> providers/   search APIs with their own paths, pages and errors
       ──> llm/         APIs of language models, with tokens and streams
quota                   the ways servers count
dialects/               how a server tells its limits
"""
