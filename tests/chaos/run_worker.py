"""``headgate run`` with crash points: ``run_worker.py ARGUMENTS``, with the arguments of the command."""

import sys

from tests.chaos.crash_points import on_step

from headgate.batch.job import Job
from headgate.cli import main
from headgate.cli.commands import run

hook = on_step()


def with_steps(send):
    async def sending(row, ctx):
        hook("send")
        line = await send(row, ctx)
        hook("receive")
        return line

    return sending


def job(*arguments, **options):
    return Job(*arguments, **{**options, "on_step": hook, "around": with_steps})


if __name__ == "__main__":
    run.Job = job
    main(["run", *sys.argv[1:]])
