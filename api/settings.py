"""What the environment says: EL_HOME, EL_DATABASE_URL, EL_PROJECT, EL_ACTOR, EL_DEBUG."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Where the ledger is and who speaks.

    `home` holds the SQLite file, the artifacts and the secret key; `database_url` overrides the file. The secret key
    itself (EL_SECRET_KEY) is read where it is needed and kept out of here.
    """

    model_config = SettingsConfigDict(env_prefix="EL_", extra="ignore")

    home: Path = Path(".el")
    database_url: str | None = None
    project: str = "default"
    actor: str = "local"
    debug: bool = False

    @property
    def url(self) -> str:
        """The database: the one named, else a SQLite file in the home folder."""
        return self.database_url or f"sqlite:///{self.home / 'ledger.db'}"
