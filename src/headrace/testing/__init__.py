"""Test your own pipelines: the real plan and the real kernel, no broker, and the clock in your hand."""

from headrace.testing.driver import Driver, Record

__all__ = ["Driver", "Record"]
