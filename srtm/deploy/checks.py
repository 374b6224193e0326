"""What of a deployment's certificates and tokens cannot work, found before anything is started."""

import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from srtm.deploy.certificates import Effect, Judgement, certificates_of, judged
from srtm.deploy.file import DistributorCaller, Plan
from srtm.deploy.tables import DistributorTable
from srtm.host.certificates import PLAIN_TEXT
from srtm.http.access import Access
from srtm.http.bearer import read_token
from srtm.http.callers import Caller, Role, read_tokens
from srtm.http.client import TlsFailed, request
from srtm.http.service import service_at
from srtm.text.errors import UnavailableError, UsageError

log = logging.getLogger("srtm.deploy")

_SECONDS = 3.0


def check_callers(plan: Plan) -> None:
    """The files that the distributor is started and reached with. Raises UsageError."""
    if plan.distributor and plan.distributor.token_file:
        where = "token-file of [distributor]"
        tokens = read_tokens(plan.distributor.token_file, where)
        if not plan.distributor.distributor_token_file and not tokens.is_one:
            raise UsageError(
                f"{where} names callers: give distributor-token-file too, the token of an "
                "operator that srtm up shows"
            )
    if plan.distributor_at:
        address, files = plan.distributor_at
        table, key = "elsewhere", "distributor-token-file"
        if plan.distributor:
            is_given = plan.distributor.distributor_token_file
            table, key = "distributor", key if is_given else "token-file"
        service_at(address, files, f"{key} of [{table}]")


def faults_of(plan: Plan, now_seconds: float) -> list[Judgement]:
    """What the files alone tell. now_seconds: Unix time. Raises UsageError for one of tokens that
    cannot be read."""
    found = [judged(each, now_seconds) for each in certificates_of(plan)]
    if plan.distributor:
        found += _callers(plan, plan.distributor)
    return [each for each in found if each.effect]


def _callers(plan: Plan, table: DistributorTable) -> Iterator[Judgement]:
    """Those whom the deployment's own distributor will not take."""
    access = Access(
        table.token_file, "token-file of [distributor]", log, table.requires_certificates
    )
    is_placing = any(each.publishers for each in plan.topics)
    for who in plan.callers():
        if who.files.root_ca not in ("", PLAIN_TEXT) and not table.tls_cert:
            yield Judgement(
                Effect.STOPS,
                f"distributor-tls-root-ca-file of {who.table}: the distributor speaks no TLS",
                "give [distributor] tls-cert and tls-key, or leave it out",
            )
        where = f"distributor-token-file of {who.table}"
        token = read_token(who.files.token, where)
        is_known_by_token = bool(token and table.token_file)
        if is_known_by_token:
            shown = f"{where} {who.files.token}"
        else:
            shown = f"distributor-tls-cert of {who.table} {who.files.cert}"
        needed = Role.AGENT if who.broker else Role.OPERATOR if is_placing else Role.READ
        caller = access.caller(f"Bearer {token}" if token else None, _certificate(who))
        fault = why_refused(caller, who.broker, needed)
        if fault:
            yield Judgement(Effect.STOPS, f"{shown}: {fault[0]}", fault[1])


def _certificate(who: DistributorCaller) -> dict[str, object] | None:
    """As SSLSocket.getpeercert would tell it."""
    if not who.files.cert:
        return None
    from srtm.certs.certificate import common_names  # a tenth of a second, and most have none

    names = common_names(Path(who.files.cert))
    return {"subject": tuple((("commonName", each),) for each in names)}


def why_refused(caller: Caller | None, broker: str, needed: Role) -> tuple[str, str] | None:
    """Why the distributor does not do what `needed` may, and the remedy; None: it does. broker: for
    which the caller speaks; "" for none."""
    if caller is None:
        return "the distributor does not know its holder", "add it to token-file of [distributor]"
    if caller.role < needed:
        remedy = f"give a token of the role {needed}"
        return f"{caller.name} has the role {caller.role}, and {needed} is needed", remedy
    if broker and caller.role is Role.AGENT and caller.name != broker:
        remedy = f"give that of {broker}: an agent speaks for the broker of its own name"
        return f"it is that of {caller.name}", remedy
    return None


def asked_elsewhere(plan: Plan) -> Iterator[Judgement]:
    """What a distributor on another host says of each caller. One that does not run may be started
    later: it is no fault."""
    if plan.elsewhere is None or plan.distributor_at is None:
        return
    address = plan.distributor_at[0]
    for who in plan.callers():
        endpoint = service_at(address, who.files, f"distributor-token-file of {who.table}")
        path = f"/v1/brokers/{quote(who.broker, safe='')}/desired" if who.broker else "/v1/topics"
        try:
            answer = request(endpoint, "GET", path, timeout_seconds=_SECONDS)
        except TlsFailed as error:
            yield Judgement(Effect.FAILS, f"{who.table}: distributor {error}")
        except UnavailableError:
            return
        else:
            if answer.status in (401, 403):
                yield Judgement(
                    Effect.FAILS,
                    f"{who.table}: distributor {address}: {answer.error}",
                    "give the right distributor-token-file",
                )
