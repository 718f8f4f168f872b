"""What every test gets: a state folder of its own, never the one of whoever runs the tests."""

import pytest


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path_factory.mktemp("state")))
