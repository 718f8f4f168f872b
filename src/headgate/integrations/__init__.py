"""The gate inside of the clients people already use: one line in front of each, and nothing else of a program changes.

passing    what is the same for all of them: one gate, its settings, and the way of a request through it
outgoing   a request as the gate sees it: whose line it stands in, what it takes, whether it may be sent twice
binding    which credential goes to which origin, and which headers must not follow a redirect
reading    what an answer says while it passes by: the tokens it took, an error in the middle of a stream

Each client's own file (``httpx2``, ``httpx``, ``openai``, ...) imports its library when it is imported itself.
"""
