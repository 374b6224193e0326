"""The admin door of one gateway: HTTP with JSON through a unix socket that only its owner opens."""

from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from srtm.deployment.document import DeployedBroker
from srtm.http.client import Answer, get_json, request
from srtm.limits.contract import Limit
from srtm.text.errors import SrtmError, UnavailableError, UsageError, one_line

Row = dict[str, Any]
"""one topic as a gateway shows it: topic, rate, burst, mode, max-wait, slo, and what it measured"""


def topics_of(broker: DeployedBroker) -> dict[str, Row]:
    """Raises UnavailableError."""
    document = get_json(broker.admin_socket, "/topics")
    try:
        return {str(row["topic"]): row for row in document["topics"]}
    except (KeyError, TypeError):
        raise UnavailableError(
            f"{broker.admin_socket}: /topics is not what a gateway says"
        ) from None


def limit_of(row: Row) -> Limit | None:
    """The limit in a topic's row; None for a topic without a limit. Raises UsageError for a row
    that makes no sense."""
    names = [field.alias or name for name, field in Limit.model_fields.items()]
    values = {name: row[name] for name in names if row.get(name) is not None}
    if "rate" not in values:
        return None
    try:
        return Limit.model_validate(values)
    except ValidationError as error:
        raise one_line(error, f"topic {row['topic']}") from None


def put_topic(broker: DeployedBroker, topic: str, limit: Limit) -> None:
    """Returns once the gateway works by it. Raises UnavailableError, UsageError, SrtmError."""
    _accepted(_on_topic(broker, "PUT", topic, limit.document()), broker)


def delete_topic(broker: DeployedBroker, topic: str) -> None:
    """A topic that it does not limit is deleted already. Raises as put_topic does."""
    answer = _on_topic(broker, "DELETE", topic)
    if answer.status != 404:
        _accepted(answer, broker)


def _on_topic(broker: DeployedBroker, method: str, topic: str, document: object = None) -> Answer:
    path = f"/topics/{quote(topic, safe='')}"
    return request(broker.admin_socket, method, path, document=document)


def _accepted(answer: Answer, broker: DeployedBroker) -> None:
    if 200 <= answer.status < 300:
        return
    refusal = f"{broker.name}: {answer.error}"
    if answer.status == 400:
        raise UsageError(refusal)
    raise SrtmError(f"{refusal} (HTTP {answer.status})")
