import functools
import ssl

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_tls_context():
    """All clients share one, which no call uses: to make it takes longer than most of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield
