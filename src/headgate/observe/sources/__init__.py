"""What a monitor reads: a batch, a crawl or a program, the keys of a limiter, and credentials."""
