"""The example of how to test a pipeline works as it is written there, in a project of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "how-to" / "test-your-pipeline.md"


@pytest.mark.soak
def test_the_documented_tests_pass(tmp_path: Path) -> None:
    files = re.findall(
        r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [name for name, _ in files] == ["jobs/clicks.py", "conftest.py", "test_clicks.py"]
    for name, text in files:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
