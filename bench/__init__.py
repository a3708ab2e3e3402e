"""Benchmarks: `make bench`. Each prints JSON lines; figures are ratios measured in one run, medians of several."""
