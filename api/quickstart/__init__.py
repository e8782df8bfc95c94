"""The files of `el quickstart`: eight small tasks, a scripted agent, the runner that runs it, and two profiles.

Under `PROFILE` (AGENT_STYLE hasty) two attempts a task show every signal: solved, wrong, no reward after a crash, and a
reward that counts although the agent ran into its timeout. Under `PROFILE_CAREFUL` one attempt is wrong, for comparing.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

TASKS = _HERE / "tasks"
RUNNER = _HERE / "runner.json"
PROFILE = _HERE / "profile.json"
PROFILE_CAREFUL = _HERE / "profile-careful.json"
