"""Promises of the profile file: the seed's file works as it stands, and no refusal shows a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.forms.profile import read_profile
from ledger.errors import BadInput, NotFound

SECRET = "sk-do-not-show-me"
# The user's own example, as they wrote it.
SEED = """{
  "schema_version": "envplatform.profile/v2",
  "name": "team/eval-my-model",
  "version": "1",
  "secret_params": ["MODEL_API_KEY"],
  "spec": {
    "params": {
      "AGENT_NAME": "claude-code",
      "AGENT_VERSION": "2.1.285",
      "MODEL_PROTOCOL": "anthropic",
      "MODEL_BASE_URL": "https://api.envloop.ai/v1/job/YOUR_INFERENCE_JOB_ID/Inference",
      "MODEL_NAME": "YOUR_ENDPOINT_MODEL/sft",
      "MODEL_API_KEY": "YOUR_ENVLOOP_KEY",
      "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
      "CLAUDE_CODE_EFFORT_LEVEL": "medium"
    }
  }
}
"""


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def changed(**changes: Any) -> dict[str, Any]:
    """The seed's file with other top-level fields; None takes one out."""
    return {name: value for name, value in (json.loads(SEED) | changes).items() if value is not None}


def with_params(params: dict[str, Any], secret_params: list[Any]) -> dict[str, Any]:
    return changed(spec={"params": params}, secret_params=secret_params)


def refusal(tmp_path: Path, content: object) -> str:
    with pytest.raises(BadInput) as refused:
        read_profile(write(tmp_path, content), "team/eval-my-model", "1")
    return str(refused.value)


def test_the_seeds_file_is_taken_as_it_stands(tmp_path: Path) -> None:
    """Reference, plain values and secrets come apart, placeholder and all."""
    ref, params, secrets = read_profile(write(tmp_path, SEED), "team/eval-my-model", "1")
    assert ref == "team/eval-my-model@1"
    assert secrets == {"MODEL_API_KEY": "YOUR_ENVLOOP_KEY"}
    assert params == {k: v for k, v in json.loads(SEED)["spec"]["params"].items() if k != "MODEL_API_KEY"}


def test_name_and_version_come_from_the_command_or_the_file(tmp_path: Path) -> None:
    """Either may leave them out; where both say one, they agree, or the file's is refused without being shown."""
    path = write(tmp_path, SEED)
    assert read_profile(path).ref == "team/eval-my-model@1"
    for name, version in (("team/other", "1"), ("team/eval-my-model", "2")):
        with pytest.raises(BadInput, match="make the two agree"):
            read_profile(path, name, version)
    path = write(tmp_path, changed(name=None, version=None))
    assert read_profile(path, "any", "3").ref == "any@3"
    with pytest.raises(BadInput, match="`name` is missing"):
        read_profile(path)
    with pytest.raises(BadInput, match="no reference"):
        read_profile(path, "a b", "1")


def test_scalars_keep_their_kind(tmp_path: Path) -> None:
    """Text, whole numbers, other numbers and truth values arrive as what they are."""
    given = {"TEXT": "4096", "WHOLE": 4096, "LARGE": -(2**62), "NUMBER": 0.5, "ON": True, "EMPTY": ""}
    params = read_profile(write(tmp_path, with_params(given, []))).params
    assert {name: (type(value), value) for name, value in params.items()} == {
        name: (type(value), value) for name, value in given.items()
    }


def test_a_file_without_secrets_needs_no_list_of_them(tmp_path: Path) -> None:
    """`secret_params` may be left out."""
    assert read_profile(write(tmp_path, changed(secret_params=None))).secrets == {}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (changed(schema_version="envplatform.profile/v3"), "`schema_version` must be 'envplatform.profile/v2'"),
        (changed(schema_version=None), "`schema_version` is missing"),
        (changed(version=1), "`version` must be text; write it in double quotes"),
        (changed(secrets={"MODEL_API_KEY": SECRET}), "`secrets` is no field of this form"),
        (changed(spec={"params": {}, "params_": SECRET}), "`spec.params_` is no field of this form"),
        (changed(spec=None), "`spec` is missing"),
        (changed(spec=SECRET), "`spec` must be an object"),
        (changed(spec={"params": [SECRET]}), "`spec.params` must be an object"),
        (changed(secret_params=SECRET), "`secret_params` must be a list"),
        (changed(secret_params=[{"MODEL_API_KEY": SECRET}]), "`secret_params[0]` must be text"),
        (changed(secret_params=["MODEL_API_KEY", SECRET]), "`secret_params[1]` in the profile file"),
        (changed(secret_params=["MODEL_API_KEY"] * 2), "names 'MODEL_API_KEY' twice in secret_params"),
        (with_params({"K": [SECRET]}, ["K"]), "The secret K must be text"),
        (with_params({"K": 7}, ["K"]), "The secret K must be text"),
        (with_params({"K": ""}, ["K"]), "The secret K is empty"),
        (with_params({"K": f"{SECRET}\0"}, ["K"]), "The secret K holds a NUL or a lone surrogate"),
        (with_params({"K": f"{SECRET}\ud800"}, ["K"]), "The secret K holds a NUL or a lone surrogate"),
        (with_params({"K": SECRET * 10_000}, ["K"]), "The secret K is larger than 65,536 bytes"),
        (with_params({"K=": SECRET}, ["K="]), "holds '='"),
        (with_params({"P": {"deep": SECRET}}, []), "The value of 'P' must be text, a number, true or false"),
        (with_params({"P": None}, []), "The value of 'P' must be text, a number, true or false"),
        (with_params({"P": float("nan")}, []), "The value of P is not finite"),
        (with_params({"P": float("-inf")}, []), "The value of P is not finite"),
        (SEED.replace('"4096"', "1e999"), "The value of CLAUDE_CODE_MAX_OUTPUT_TOKENS is not finite"),
        (with_params({"P": 2**64}, []), "The value of 'P' is a whole number beyond 64 bits"),
        (with_params({"P": f"{SECRET}\ud800"}, []), "The value of 'P' holds a lone surrogate"),
        (with_params({"P": SECRET * 1_000}, []), "The value of P holds a NUL or has more than 4,000 characters"),
        (with_params({"P\ud800": SECRET}, []), "holds a control character or a lone surrogate"),
        (with_params({"": SECRET}, []), "The parameter name is empty"),
        (with_params({f"P{n}": SECRET for n in range(1_001)}, []), "`spec.params` is too long"),
        (SEED.replace('"AGENT_NAME"', '"MODEL_API_KEY"'), "has the key 'MODEL_API_KEY' twice"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 100 else "",
)
def test_what_does_not_fit_is_named_without_any_value(tmp_path: Path, content: object, told: str) -> None:
    """One sentence names the field or the parameter; no value of the file is in it."""
    sentence = refusal(tmp_path, content)
    assert told in sentence
    assert SECRET not in sentence
    assert "YOUR_ENVLOOP_KEY" not in sentence


def test_a_refusal_carries_no_error_that_holds_the_file(tmp_path: Path) -> None:
    """The parser's own error holds the whole text; it does not travel along as a cause or a context."""
    for content in (SEED[:-5], changed(spec={"params": SECRET})):
        with pytest.raises(BadInput) as refused:
            read_profile(write(tmp_path, content))
        assert refused.value.__cause__ is refused.value.__context__ is None


def test_what_was_read_hides_its_values_when_shown(tmp_path: Path) -> None:
    """A repr in a log or a failed assertion names the parameters only."""
    read = read_profile(write(tmp_path, SEED))
    assert "YOUR_ENVLOOP_KEY" not in f"{read!r} {read}"
    assert "MODEL_API_KEY" in repr(read)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    """The sentence says which file."""
    with pytest.raises(NotFound, match=r"nowhere\.json is not there"):
        read_profile(tmp_path / "nowhere.json")
