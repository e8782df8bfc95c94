"""What the environment says: every EL_* setting but the secret key (ledger/secrets.py) and `EL_PROJECT` of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ledger.errors import BadInput


class Settings(BaseSettings):
    """Where the ledger is, who speaks, and how it is served.

    `home` holds the SQLite file, the artifacts and the secret key; `database_url` overrides the file. With `api_url`
    the ledger is a server elsewhere, and `api_key` opens it; empty ones count as unset. The secret key itself
    (EL_SECRET_KEY) is read where it is needed and kept out of here.

    Raises:
        BadInput: a value that has not the right form. The sentence names the setting, never its value.
    """

    model_config = SettingsConfigDict(env_prefix="EL_", extra="ignore")

    home: Path = Path(".el")
    database_url: str | None = None
    project: str = "default"
    actor: str = "local"
    debug: bool = False

    api_url: str | None = None
    api_key: SecretStr | None = None

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    forwarded_allow_ips: str = "127.0.0.1"
    metrics_key: SecretStr | None = None
    shutdown_s: int = Field(default=30, ge=1, le=600)

    @field_validator("api_url", "api_key", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: Any) -> Any:
        return None if value == "" else value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False, include_context=False)[0]
            # The value stays out of the sentence: it may be a key.
            name = f"{self.model_config['env_prefix']}{'_'.join(str(part) for part in wrong['loc'])}".upper()
            raise BadInput(f"{name} cannot be used: {wrong['msg'][:1].lower()}{wrong['msg'][1:]}.") from None

    @property
    def url(self) -> str:
        """The database: the one named, else a SQLite file in the home folder."""
        return self.database_url or f"sqlite:///{self.home / 'ledger.db'}"
