import ssl

import pytest

from tests.support.certificates import Authority


@pytest.fixture(scope="session")
def trusting(authority: Authority) -> ssl.SSLContext:
    """A client's context that verifies by the tests' own authority."""
    return ssl.create_default_context(cafile=authority.ca_file)
