"""The README is true: its blocks run as they stand, in a clean folder, and print what it shows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"<!-- (\w[\w ]*) -->\n```bash\n(.*?)```", README, re.DOTALL)


def shell(script: str, cwd: Path, **environ: str) -> str:
    """What a shell script prints; it must end well."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    kept["PATH"] = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != str(BIN))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=kept | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_two_commands_of_one_line_each() -> None:
    """One command runs the main job, one passes all tests; `.ci/run` takes the second from the README itself."""
    named = dict(BLOCKS)
    assert named["main command"].count("\n") == named["test command"].count("\n") == 1
    ci = (ROOT / ".ci" / "run").read_text()
    assert "<!-- test command -->" in ci


def test_the_main_command_works_in_a_fresh_clone(tmp_path: Path) -> None:
    """A clone, the README's first line, nothing else: the evaluation is executed and measured."""
    clone = tmp_path / "clone"
    shell(f"git clone -q {ROOT} {clone}", tmp_path)
    # What is not committed yet is part of what is tested.
    shell(f"git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t {clone} 2>/dev/null || true", ROOT)
    printed = shell(dict(BLOCKS)["main command"], clone, **_index())
    assert printed.index("coverage") < printed.index("score")
    assert "–" in printed


def test_the_tour_runs_as_it_stands(tmp_path: Path) -> None:
    """The blocks of the tour run one after the other, in one shell, in a clean folder; then a server, then Python."""
    script = "\n".join(text for name, text in BLOCKS if name == "tour")
    printed = shell(script, tmp_path, PATH=f"{BIN}:{os.environ['PATH']}")
    assert "score 60%" in printed
    assert "0 (was 1)" in printed
    assert "revised since: now score 75%" in printed
    assert "the evidence holds" in printed
    _serve(tmp_path)
    (python,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "tour.py").write_text(python)
    assert "scored=1" in shell(f"{BIN / 'python'} tour.py", tmp_path)


def _serve(folder: Path) -> None:
    """The server's block with a free port for 8000, then the client's, then the end of the server."""
    named = dict(BLOCKS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    script = f"""{named["tour server"]}
SERVER=$!
trap 'kill $SERVER && wait $SERVER' EXIT
for _ in $(seq 300); do
  python -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:{port}/health/ready")' 2> /dev/null && break
  sleep 0.1
done
{named["tour client"].replace(":8000", f":{port}")}"""
    printed = shell(script, folder, PATH=f"{BIN}:{os.environ['PATH']}", EL_PORT=port)
    assert "4 trials ended: 4 succeeded" in printed
    assert "key ci opens nothing any more" in printed


def _index() -> dict[str, str]:
    """Where packages come from is the machine's business, so its settings are passed on."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
