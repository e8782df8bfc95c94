"""docs/client.md is true: its Python runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent / "docs" / "client.md"


def test_the_python_of_the_client_document_runs(tmp_path: Path) -> None:
    """Its blocks, one after the other, in an empty home."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 2
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        env={"EL_HOME": str(tmp_path / "home"), "PYTHONPATH": str(DOCUMENT.parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
