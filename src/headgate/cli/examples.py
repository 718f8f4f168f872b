"""Help pages that teach: a command with a block of examples, written as typed."""

from __future__ import annotations

from typing import Any

import click


class ExampleCommand(click.Command):
    """A command whose help ends in examples: ``(what you type, what it does)``, in the order to try them."""

    def __init__(self, *args: Any, examples: list[tuple[str, str]], **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)
        self.examples = examples

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.allow_extra_args = True
        try:
            super().parse_args(context, args)
            if context.args:  # not repeated: it may be a key in the wrong place
                count = len(context.args)
                raise click.UsageError(
                    f"{count} argument{'s'[: count - 1]} too many; put quotes around what has spaces"
                )
            return context.args
        except click.UsageError as error:
            error.ctx = error.ctx or context  # an option without its value does not say whose option it is
            raise

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for typed, does in self.examples:
                formatter.write_text(f"# {does}")
                formatter.write(f"{' ' * formatter.current_indent}{typed}\n")
        super().format_options(context, formatter)
