"""What the commands share.

typed      options, config_file, observe_options (--web, --report, --trace), shared_state (--store, --keys)
shown      terminal (messages, exit codes), display (frames, a summary)
frames     run_page, store_page; run_sampler takes them again and again
running    session (event loop, Ctrl-C)
"""
