"""Names that a certificate may be for, and what is said of others."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.certs.names import Names
from srtm.text.errors import UsageError


@pytest.mark.parametrize(
    ("name", "dns", "ip", "names"),
    [
        pytest.param("b1", (), (), Names(("b1",)), id="a-short-name"),
        pytest.param("b1.example.org", (), (), Names(("b1.example.org",)), id="a-host-name"),
        pytest.param("publisher_1", (), (), Names(("publisher_1",)), id="as-containers-have"),
        pytest.param("10.0.0.1", (), (), Names((), ("10.0.0.1",)), id="an-address"),
        pytest.param("::1", (), (), Names((), ("::1",)), id="an-address-of-IPv6"),
        pytest.param(
            "b1",
            ("*.example.org", "b1", "localhost"),
            ("127.0.0.1", "0:0:0:0:0:0:0:1", "::1"),
            Names(("b1", "*.example.org", "localhost"), ("127.0.0.1", "::1")),
            id="each-once-and-addresses-in-one-form",
        ),
    ],
)
def test_names(name: str, dns: tuple[str, ...], ip: tuple[str, ...], names: Names) -> None:
    assert Names.of(name, dns, ip) == names


@pytest.mark.parametrize(
    ("name", "dns", "ip", "said"),
    [
        pytest.param("", (), (), "'' is no host name", id="nothing"),
        pytest.param("ca", (), (), "the name of the authority's own files", id="the-authority"),
        pytest.param("a b", (), (), "'a b' is no host name", id="a-space"),
        pytest.param("../b1", (), (), "is no host name", id="a-path"),
        pytest.param("-b1", (), (), "is no host name", id="a-hyphen-first"),
        pytest.param("b1.", (), (), "is no host name", id="a-dot-at-its-end"),
        pytest.param("b1\n", (), (), r"'b1\\n' is no host name", id="two-lines"),
        pytest.param("münchen", (), (), "in ASCII, as DNS has it: xn--", id="not-ascii"),
        pytest.param("b" * 65, (), (), "at most 64 characters", id="long"),
        pytest.param("*.example", (), (), "a wildcard names no file", id="a-wildcard"),
        pytest.param("b1", ("a..b",), (), "'a..b' is no host name", id="an-empty-part"),
        pytest.param("b1", ("a.*.b",), (), "is no host name", id="a-wildcard-within"),
        pytest.param("b1", ("b" * 64,), (), "is no host name", id="a-long-part"),
        pytest.param("b1", (".".join(["b" * 63] * 4),), (), "is no host name", id="254-in-all"),
        pytest.param("b1", ("10.0.0.1",), (), "is an address; give it with --ip", id="dns-of-ip"),
        pytest.param("b1", (), ("b2",), "is no IP address; give a host", id="ip-of-dns"),
        pytest.param("b1", (), ("10.0.0.1/8",), "is no IP address", id="a-network"),
        pytest.param("b1", (), ("fe80::1%eth0",), "is no IP address", id="of-one-link"),
    ],
)
def test_what_is_no_name(name: str, dns: tuple[str, ...], ip: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Names.of(name, dns, ip)


@given(st.text(max_size=80))
def test_a_name_that_is_taken_is_that_of_a_file(name: str) -> None:
    try:
        names = Names.of(name)
    except UsageError:
        return
    assert "/" not in name
    assert name not in (".", "..")
    assert len(names.dns) + len(names.ip) == 1
    for each in names.ip:
        ipaddress.ip_address(each)
