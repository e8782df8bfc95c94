"""A profile file (`envplatform.profile/v2`): values for runner parameters, some of them secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from api.forms.document import Form, checked_scalar, is_unicode, read_document, shown_name
from ledger.errors import BadInput
from ledger.facts.catalogue import Scalar
from ledger.rules.catalogue import check_parameter
from ledger.rules.forms import checked_ref
from ledger.secrets import MAX_SECRET_BYTES

NOUN = "profile file"
PARAMETERS_MAX = 1_000


class ProfileSpec(Form):
    """The `spec` of a profile file. The values are looked at one by one, to name the parameter in a refusal."""

    params: dict[str, Any] = Field(max_length=PARAMETERS_MAX)


class ProfileForm(Form):
    """A profile file. Without `name` or `version` it serves for whichever the command names."""

    schema_version: Literal["envplatform.profile/v2"]
    name: str | None = None
    version: str | None = None
    secret_params: list[str] = []
    spec: ProfileSpec


class ProfileRead(NamedTuple):
    """What a profile file says: its reference `name@version`, plain values and secret values by parameter name."""

    ref: str
    params: dict[str, Scalar]
    secrets: dict[str, str]

    def __repr__(self) -> str:
        return f"ProfileRead({self.ref!r}, params={sorted(self.params)}, secrets={sorted(self.secrets)})"


def read_profile(path: Path, name: str | None = None, version: str | None = None) -> ProfileRead:
    """The profile `name@version` from its file: (ref, params, secrets). Only the secrets hold secret values.

    A name or version left out is taken from the file.

    Raises:
        NotFound: there is no file at `path`.
        BadInput: the file does not fit, or names another profile. The sentence shows no value of a parameter.
    """
    form = read_document(path, ProfileForm, noun=NOUN)
    name = _agreed("name", name, form.name, path)
    version = _agreed("version", version, form.version, path)
    values = dict(form.spec.params)
    secrets: dict[str, str] = {}
    for number, secret in enumerate(form.secret_params):
        if secret in secrets:
            raise BadInput(f"The {NOUN} {path} names {shown_name(secret)} twice in secret_params; keep one of them.")
        if secret not in values:
            # By its number: somebody may have written the secret itself where its name belongs.
            raise BadInput(
                f"`secret_params[{number}]` in the {NOUN} {path} names nothing in spec.params; "
                "give the parameter a value there, and only its name in secret_params."
            )
        secrets[secret] = checked_secret(secret, values.pop(secret))
    return ProfileRead(
        checked_ref(f"{name}@{version}"), {key: checked_scalar(key, value) for key, value in values.items()}, secrets
    )


def _agreed(field: str, asked: str | None, in_file: str | None, path: Path) -> str:
    """The name or version that the command and the file agree on; one of them may leave it out."""
    if asked is not None and in_file is not None and asked != in_file:
        raise BadInput(f"The {field} in the {NOUN} {path} is not {asked!r}, as the command says; make the two agree.")
    agreed = in_file if asked is None else asked
    if agreed is None:
        raise BadInput(f"`{field}` is missing in the {NOUN} {path}; give it there or with the command.")
    return agreed


def checked_secret(name: str, value: object) -> str:
    """A secret's value as it is: text that a process can get in its environment."""
    check_parameter(name, None)
    if not isinstance(value, str):
        raise BadInput(f"The secret {name} must be text; write its value in double quotes.")
    if not value:
        raise BadInput(f"The secret {name} is empty; give its value, or take it out of secret_params.")
    if "\0" in value or not is_unicode(value):
        raise BadInput(f"The secret {name} holds a NUL or a lone surrogate; take it out.")
    if len(value.encode()) > MAX_SECRET_BYTES:
        raise BadInput(f"The secret {name} is larger than {MAX_SECRET_BYTES:,} bytes.")
    return value
