"""The libraries under test, each behind the smallest adapter that lets one test drive them all.

Peers are imported where they are built: a process that measures one of them loads that one.
"""
