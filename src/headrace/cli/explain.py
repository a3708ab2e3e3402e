"""`headrace explain MODULE:PIPELINE`."""

from __future__ import annotations

from headrace.cli.loading import pipeline_of
from headrace.cli.output import Format, Output, OutputOption
from headrace.cli.run import RegistryOption, Target


def explain(target: Target, registry: RegistryOption = None, output: OutputOption = Format.TEXT) -> None:
    """Draw the plan: steps, queries, state and its retention, and the guarantee of each output. Starts nothing."""
    from headrace.engine.explain import explain_dict, explain_text

    pipeline = pipeline_of(target)
    Output.of(output).record(explain_dict(pipeline, registry), explain_text(pipeline, registry))
