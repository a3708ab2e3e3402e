"""Watching pipelines: the dashboard, its alarms, the terminal view, and the doctor."""
