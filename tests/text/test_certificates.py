"""Every refusal of a certificate that OpenSSL makes in our tests has its remedy."""

import ssl

import pytest

from srtm.host.certificates import TlsFiles, client_context, server_context
from srtm.text.certificates import why_tls_failed
from tests.support.certificates import Authority, handshake


@pytest.mark.parametrize(
    ("issued", "name", "remedy"),
    [
        pytest.param({"expired": True}, "localhost", "renew it", id="expired"),
        pytest.param({}, "other.host", "use a name that is in it", id="another-name"),
        pytest.param({}, "127.0.0.2", "use a name that is in it", id="another-address"),
        pytest.param({"client": True}, "localhost", "a client's is no server's", id="a-clients"),
    ],
)
def test_a_refused_certificate_is_told_with_its_remedy(
    authority: Authority, issued: dict[str, bool], name: str, remedy: str
) -> None:
    cert, key = authority.issue("localhost", dns=["localhost"], **issued)  # type: ignore[arg-type]
    trusts = client_context(TlsFiles(root_ca=authority.ca_file))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        handshake(server_context(TlsFiles(cert, key)), trusts, name)
    text = why_tls_failed(caught.value)
    assert text.endswith(remedy)
    assert text.startswith("its certificate is not accepted: ")
    assert "\n" not in text


def test_the_remedy_of_an_unknown_authority_is_its_file(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cert, key = authority.issue("localhost", dns=["localhost"])
    other = Authority(tmp_path_factory.mktemp("other"), "another")
    trusts = client_context(TlsFiles(root_ca=other.ca_file))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        handshake(server_context(TlsFiles(cert, key)), trusts, "localhost")
    assert why_tls_failed(caught.value).endswith("; give the file of its authority")
