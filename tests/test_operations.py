"""docs/operations.md against the code and against tools that can read it; and settings that cannot be used."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from api.serving import END_S
from api.settings import Settings
from ledger.errors import BadInput

PAGE = (Path(__file__).parent.parent / "docs" / "operations.md").read_text()
OUTSIDE = {"EL_SECRET_KEY", "EL_SIGNING_KEY"}  # read where it is needed, so that no Settings ever holds it


def block(language: str) -> str:
    """The one block of a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_every_setting_is_in_the_table() -> None:
    """No more and no fewer than there are."""
    table = PAGE.split("## Settings")[1].split("\n## ")[0]
    first_cells = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"EL_[A-Z_]+", first_cells))
    assert named == {f"EL_{name.upper()}" for name in Settings.model_fields} | OUTSIDE


@pytest.mark.parametrize(("name", "value"), [("PORT", "high"), ("PORT", "70000"), ("SHUTDOWN_S", "0"), ("DEBUG", "x")])
def test_a_setting_that_cannot_be_used_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """It names the setting and not its value."""
    monkeypatch.setenv(f"EL_{name}", value)
    with pytest.raises(BadInput, match=f"^EL_{name} cannot be used: [^\n]*\\.$"):
        Settings()


def test_keys_in_settings_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is not in the text of the settings."""
    monkeypatch.setenv("EL_API_KEY", "el_planted")
    monkeypatch.setenv("EL_METRICS_KEY", "el_planted")
    assert "planted" not in repr(Settings())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here to read the unit")
def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say; the program is stood in for, since it lies elsewhere here."""
    unit = tmp_path / "el-serve@.service"
    unit.write_text(block("ini").replace("/opt/evalledger/bin/el", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit.read_text())[0]) > Settings().shutdown_s + END_S


def test_the_compose_file_is_yaml_and_hangs_together() -> None:
    """Volumes, secrets and services that are named exist; the settings in it are settings."""
    compose = yaml.safe_load(block("yaml"))
    services = compose["services"].values()
    for kind in ("volumes", "secrets"):
        used = {str(name).partition(":")[0] for service in services for name in service.get(kind, [])}
        assert used == set(compose[kind])
    assert set(compose["services"]["api"]["depends_on"]) <= set(compose["services"])
    named = {name for name in compose["services"]["api"]["environment"] if name.startswith("EL_")}
    assert named <= {f"EL_{field.upper()}" for field in Settings.model_fields} | OUTSIDE
