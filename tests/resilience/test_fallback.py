"""How fallbacks are written."""

from __future__ import annotations

import pytest

from headgate import CredentialCoordinator, Fallback
from headgate.core.fallback import USUAL_REASONS
from headgate.errors import ConfigError
from headgate.resilience.fallback import read_fallbacks


def test_a_model_a_text_a_mapping_and_the_class_say_the_same() -> None:
    spelled = Fallback(to="groq", model="llama", keys=("env:A", "env:B"), on={"spend", "too_long"})  # type: ignore[arg-type]
    text = "to=groq, model=llama, keys=env:A, keys=env:B, on=spend+too_long"
    mapping = {"to": "groq", "model": "llama", "keys": ["env:A", "env:B"], "on": ["spend", "too_long"]}
    assert read_fallbacks([spelled, text, mapping]) == (spelled, spelled, spelled)
    assert read_fallbacks("gpt-4o-mini") == (Fallback(model="gpt-4o-mini"),)
    assert read_fallbacks("m, on=spend") == (Fallback(model="m", on="spend"),)  # type: ignore[arg-type]
    assert Fallback(model="m").on == USUAL_REASONS
    assert read_fallbacks(None) == ()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "name another model"),
        ("to=groq,modell=x", "'modell' is not one of model=..."),
        ("to=groq,model=", "a part is not one of"),
        ("to=a,to=b", "to is given twice"),
        ("m,model=n", "model is given twice"),
        ("to=a,m", "a part is not one of"),
        ("model=m,on=money", "'money' is not a reason to move"),
        ("model=m,keys=sk-secret-123", "a key itself is not taken here"),
        ({"model": "m", "reason": "spend"}, "unknown field 'reason'"),
        ({"model": 5}, "model must be a text"),
        (7, "int is not a Fallback"),
    ],
)
def test_what_cannot_be_is_explained_without_a_key(given, says) -> None:
    with pytest.raises(ConfigError) as caught:
        read_fallbacks([given])
    assert says in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_there_are_not_too_many() -> None:
    with pytest.raises(ConfigError, match="the limit is 10"):
        read_fallbacks(["m"] * 11)


def test_keys_may_be_a_coordinator_and_are_not_shown() -> None:
    fallback = Fallback(to="groq", keys=CredentialCoordinator(["secret-0123456789"]))
    assert fallback.sources == ()
    assert "secret" not in repr(fallback)
