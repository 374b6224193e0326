"""The certificates that a deployment's file names, and whether they will do, before any program
shows one."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from srtm.certs.trial import Trial, try_client, try_server
from srtm.deploy.file import DistributorCaller, Plan
from srtm.host.certificates import WARN_DAYS, TlsFiles
from srtm.text.errors import UsageError
from srtm.text.words import counted

_DAY_SECONDS = 86_400


class NamedCertificate(NamedTuple):
    """host: name of its host; "" where there are no hosts
    key:  the words that find it in the file
    name: at which clients reach its server; "" where nobody says
    root: the file by which the other side verifies it; "" where nobody says
    is_ours:   the other side is a program of the deployment
    is_client: it is shown to a server
    """

    host: str
    key: str
    name: str
    files: TlsFiles
    root: str
    is_ours: bool
    is_client: bool = False


class Effect(IntEnum):
    """What becomes of a deployment with it. fails: nobody can use it; stops: no program starts, or
    none reaches the distributor."""

    NONE = 0
    WARNS = 1
    FAILS = 2
    STOPS = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """remedy: "" where all is well."""

    effect: Effect
    says: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.says}; {self.remedy}" if self.remedy else self.says


def certificates_of(plan: Plan) -> Iterator[NamedCertificate]:
    """Those that the file names."""
    for broker in plan.brokers:
        files = plan.gateway_options(broker).tls_files
        if files:
            key, name = f"tls-cert of broker {broker.name}", plan.deployment.broadcast_address
            yield NamedCertificate(broker.host, key, name, files, files.root_ca, False)
    roots: set[str] = set()
    shown: set[str] = set()
    for who in plan.callers():
        if who.files.root_ca not in roots:
            roots.add(who.files.root_ca)
            yield from _of_distributor(plan, who)
        if who.files.cert and who.files.cert not in shown:
            shown.add(who.files.cert)
            files = TlsFiles(who.files.cert, who.files.key, who.files.root_ca)
            root = plan.distributor.tls_root_ca_file if plan.distributor else ""
            key = f"distributor-tls-cert of {who.table}"
            yield NamedCertificate(who.host, key, "", files, root, True, is_client=True)
    if plan.nsqadmin and plan.nsqadmin.http_client_tls_cert:
        gateways = [plan.gateway_options(each) for each in plan.brokers]
        asking = [each.tls_root_ca_file for each in gateways if each.tls_client_auth_policy]
        key, files = "http-client-tls-cert of nsqadmin", plan.nsqadmin.tls_files
        root = asking[0] if asking else ""
        yield NamedCertificate("", key, "", files, root, True, is_client=True)
    if plan.nsqadmin and plan.nsqadmin.http_client_tls_root_ca_file:
        yield from _of_nsqadmin(plan, plan.nsqadmin.http_client_tls_root_ca_file)


def _of_nsqadmin(plan: Plan, root: str) -> Iterator[NamedCertificate]:
    """What nsqadmin is shown by brokers that it reads by HTTPS."""
    for broker in plan.brokers:
        options = plan.gateway_options(broker)
        if options.http_requires_tls and options.tls_files:
            key = f"tls-cert of broker {broker.name}, as nsqadmin verifies it:"
            yield NamedCertificate(broker.host, key, "", options.tls_files, root, False)


def _of_distributor(plan: Plan, who: DistributorCaller) -> Iterator[NamedCertificate]:
    """As `who` verifies it."""
    table = plan.distributor
    if table is None or not table.tls_files or not who.files.root_ca:
        return
    host = table.host or (plan.hosts[0].name if plan.hosts else "")
    key = "tls-cert of distributor"
    if who.broker:
        key = f"{key}, as {who.table} verifies it:"
    name = table.http_address.reachable.host
    yield NamedCertificate(host, key, name, table.tls_files, who.files.root_ca, True)


def judged(tried: NamedCertificate, now_seconds: float) -> Judgement:
    """What the other side would say of it. now_seconds: Unix time."""
    try:
        if tried.is_client:
            trial = try_client(tried.files, tried.root)
        else:
            trial = try_server(tried.files, tried.name, tried.root)
    except UsageError as error:
        remedy = "give a certificate and the key that belongs to it, as srtm certs issue makes them"
        return Judgement(Effect.STOPS, f"{tried.key}: {error}", remedy)
    return judge(tried, trial, now_seconds)


def judge(tried: NamedCertificate, trial: Trial, now_seconds: float) -> Judgement:
    """What follows from a trial."""
    left_days = (trial.expires_at - now_seconds) / _DAY_SECONDS
    remedies = []
    effect = Effect.NONE
    says = [f"{tried.key} {tried.files.cert}"]
    if left_days <= 0 or trial.not_yet:
        effect = Effect.FAILS
        says.append("is not valid yet" if trial.not_yet else "has expired")
        remedies.append("set the clock" if trial.not_yet else "renew it")
    else:
        left = counted(int(left_days), "day") if left_days >= 1 else "less than a day"
        says.append(f"ends in {left}")
        if left_days < WARN_DAYS:
            remedies.append("renew it")
    if trial.chain_refused:
        says.append(f"does not chain to {tried.root}: {trial.chain_refused}")
        remedies.append("have it issued by an authority of that file, or change the file")
    if trial.name_refused:
        says.append(f"is not for {tried.name}, at which clients reach it")
        remedies.append(
            f"have {tried.name} among its names, as srtm certs issue does by --ip and --dns"
        )
    if tried.is_ours and (trial.chain_refused or trial.name_refused):
        effect = Effect.FAILS
    if tried.is_ours and effect is Effect.FAILS:
        effect = Effect.STOPS
    elif remedies and effect is Effect.NONE:
        effect = Effect.WARNS
    return Judgement(effect, "; ".join(says), "; ".join(remedies))
