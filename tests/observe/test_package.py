"""What programs import from ``headgate.observe``, each loaded when it is first taken."""

import pytest

from headgate import observe


@pytest.mark.parametrize("name", observe.__all__)
def test_every_name_is_there(name):
    assert getattr(observe, name).__name__ == name


def test_another_name_is_not():
    with pytest.raises(AttributeError, match="Watched"):
        observe.Watched  # noqa: B018
