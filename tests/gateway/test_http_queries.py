"""Whatever a query holds, the gateway's HTTP door answers with nsqd's own status."""

from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srtm.nsq.commands import identify, pub
from tests.support.cases import cases
from tests.support.servers import GatewayProcess, Nsqd, Servers, http
from tests.support.v2 import V2


@pytest.fixture(scope="module")
def nsqd(shared: Servers) -> Nsqd:
    return shared.nsqd()


@pytest.fixture(scope="module")
def gateway(shared: Servers, nsqd: Nsqd) -> GatewayProcess:
    gateway = shared.gateway(nsqd=nsqd)
    with V2(gateway.tcp) as client:
        client.subscribe("there", "channel")
        client.send(pub(b"there", b"x"))
        assert client.message().body == b"x"
    return gateway


def test_stats_show_a_publishers_own_words_as_nsqd_reads_them(
    gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    said = b'{"client_id":"\\ud800","hostname":"h\\udfff\\u0000","user_agent":"\xff\\ud83dz"}'
    with V2(gateway.tcp) as client, V2(nsqd.tcp) as straight:
        shown = []
        for connection, server in ((client, gateway), (straight, nsqd)):
            connection.send(identify(said) + pub(b"words", b"x"))
            assert [connection.reply(), connection.reply()] == [b"OK"] * 2
            document = http(server.http, "/stats?format=json&topic=words")[1]
            shown.append(
                [
                    {name: entry[name] for name in ("client_id", "hostname", "user_agent")}
                    for entry in document["producers"]
                    if entry["client_id"] == "\ufffd"
                ]
            )
            assert http(server.http, "/stats?topic=words")[0] == 200
        assert http(gateway.http, "/metrics")[0] == 200
    assert shown[0] == shown[1]
    assert len(shown[0]) == 1


NAMES = st.sampled_from(
    ["topic", "channel", "format", "include_clients", "include_mem", "defer", "binary", "Topic"]
)
VALUES = st.one_of(
    st.sampled_from(["there", "nosuch", "channel", "json", "true", "false", "1", "0", "", "a b"]),
    st.text(max_size=70).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=8),
    st.integers().map(str),
).map(quote)
PAIRS = st.tuples(NAMES, VALUES).map("=".join)
ANY = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"))
QUERY = st.one_of(st.lists(PAIRS, max_size=4).map("&".join), ANY)


@given(
    path=st.sampled_from(["/stats", "/pub", "/mpub", "/ping", "/info", "/nothing"]),
    query=QUERY,
    body=st.one_of(st.none(), st.just(b""), st.binary(max_size=40)),
    method=st.sampled_from([None, "HEAD", "PUT", "DELETE"]),
)
@settings(max_examples=cases(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_query_has_nsqds_own_status(
    gateway: GatewayProcess,
    nsqd: Nsqd,
    path: str,
    query: str,
    body: bytes | None,
    method: str | None,
) -> None:
    own, ours = (
        http(server.http, f"{path}?{query}", body, method)[0] for server in (nsqd, gateway)
    )
    assert ours == own
