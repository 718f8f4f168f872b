"""What a batch and a crawl are both made of: lanes, workers, queues, and files that survive the process.

    scheduler ──> lane (permit first, then work) ──> worker pool ──> recorder ──> store on disk

Nothing here knows rows or pages.
"""
