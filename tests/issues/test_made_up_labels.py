"""Labels that are made up give way to the secrets, whatever those are."""

from __future__ import annotations

import pytest

from headgate import Credential, CredentialCoordinator, credentials_from
from headgate.providers import TavilyProvider


def labels(*credentials: str | Credential) -> list[str]:
    return list(CredentialCoordinator(credentials).labels)


def test_the_first_thing_that_is_tried_works() -> None:
    keys = CredentialCoordinator(["key-1", "key-2"])
    assert keys.labels == ("key-3", "key-4")
    with keys.lease() as lease:
        assert lease.secret == "key-1"


def test_they_are_numbered_as_ever_where_no_secret_is_in_the_way() -> None:
    assert labels("sk-one", "sk-two") == ["key-1", "key-2"]
    assert labels("1", "2") == ["key-1", "key-2"]
    assert labels("sk-one", Credential("mine", "sk-two"), "sk-three") == ["key-1", "mine", "key-3"]


def test_the_next_free_number_is_taken_where_one_is_in_the_way() -> None:
    assert labels("key-2", "sk-two", "sk-three") == ["key-1", "key-3", "key-4"]
    assert labels("sk-one", Credential("key-1", "sk-two"), "sk-three") == ["key-2", "key-1", "key-3"]


def test_ten_thousand_numbers_that_are_secrets_leave_labels_for_all() -> None:
    secrets = [f"{number:04}" for number in range(10_000)]
    found = labels(*secrets)
    assert len(set(found)) == len(secrets)
    assert not any(label[start : start + 4] in secrets for label in found[-20:] for start in range(len(label)))


@pytest.mark.parametrize(
    "secrets",
    [
        ["key-2", "key-1"],
        ["key-1", "credential-1", "a-1", "b-1", "key-b"],
        ["other", "xkey", "key-", "key-2"],
        [*(f"{number}" for number in range(1200))],  # "1000" is in key-1000
        [*(f"key-{number}" for number in range(1, 50)), *(f"credential-{number}" for number in range(1, 50))],
    ],
)
def test_no_label_is_or_holds_a_secret(secrets: list[str]) -> None:
    found = labels(*secrets)
    assert len(set(found)) == len(secrets)
    assert not set(found) & set(secrets)
    assert not any(len(secret) >= 4 and secret in label for label in found for secret in secrets)


def test_labels_that_were_given_are_kept_and_not_given_twice() -> None:
    found = labels("sk-one", Credential("key-1", "sk-two"), Credential("mine", "sk-three"))
    assert found[1:] == ["key-1", "mine"]
    assert len(set(found)) == 3


def test_a_variable_that_holds_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "SEARCH_KEY")
    assert labels(*credentials_from("env:SEARCH_KEY")) == ["key-1"]


def test_a_provider_takes_a_key_of_any_text() -> None:
    assert TavilyProvider(api_key="key-1") is not None
