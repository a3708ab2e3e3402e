"""From a symptom to the measured cause and the fix: what `headrace doctor` does."""
