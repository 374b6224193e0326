"""The name and the addresses under which this broker is announced to others."""

import hashlib
import logging

from srtm.certs.trial import try_server
from srtm.gateway.agent import Identity
from srtm.gateway.nsqd import Facts
from srtm.gateway.options import GatewayOptions
from srtm.host.clock import boot_id
from srtm.text.address import Address

log = logging.getLogger("srtm.gateway")


def broker_name(options: GatewayOptions) -> str:
    """The name of this broker in logs and traces."""
    return options.broker_name or _told(options, options.tcp_address)


def identity(options: GatewayOptions, instance: str) -> Identity:
    """Who this broker is at the Load Distributor, with the addresses that clients are told.
    instance: of the state file; empty without one: then it is what listens at this address of this
              running machine, the same after a restart and another one on any other host"""
    tcp, web = (_told(options, each) for each in (options.tcp_address, options.http_address))
    if not instance:
        place = f"{boot_id()}\n{options.tcp_address}"
        instance = hashlib.sha256(place.encode()).hexdigest()[:16]
    return Identity(options.broker_name or tcp, tcp, web, options.broker_capacity, instance)


def check_broadcast(options: GatewayOptions, tcp: str, web: str, facts: Facts) -> None:
    """Warn where nsqd leads others round the gateway. tcp, web: where the gateway listens, which
    may be told as it stands"""
    ours = {
        "broadcast_address": options.broadcast_address,
        "broadcast_tcp_port": Address.parse(tcp, lowest=0).port,
        "broadcast_http_port": Address.parse(web, lowest=0).port,
    }
    if facts.broadcast["broadcast_address"] == Address.parse(tcp, lowest=0).host:
        del ours["broadcast_address"]
    for name, value in ours.items():
        if facts.broadcast[name] != value:
            flag = name.replace("_", "-")
            log.warning(
                "nsqd tells nsqlookupd --%s=%s, so consumers and nsqadmin bypass the "
                "gateway; start nsqd with --%s=%s",
                flag,
                facts.broadcast[name],
                flag,
                value,
            )


def check_certificate(options: GatewayOptions) -> None:
    """Warn where clients, who are told the broadcast address, do not take the certificate. Raises
    UsageError for files that cannot be used."""
    files = options.tls_files
    if files is None:
        return
    name = options.broadcast_address
    why = try_server(files, name, "").name_refused
    if why:
        log.warning(
            "--tls-cert %s is not for %s, at which clients are told to connect (%s); have %s among "
            "its names, or set --broadcast-address",
            files.cert,
            name,
            why,
            name,
        )


def _told(options: GatewayOptions, address: str) -> str:
    return f"{options.broadcast_address}:{address.rpartition(':')[2]}"
