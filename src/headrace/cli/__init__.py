"""The `headrace` command: one file per noun."""
