"""The admin API on a 0600 unix socket: limits at run time. It is closed to everybody else."""

import json
from typing import Any

from pydantic import ValidationError
from tornado.web import Application

from srtm.gateway.host import Host
from srtm.gateway.http.audit import note, sender_of
from srtm.gateway.http.stats import srtm_document, topic_document
from srtm.gateway.measure.record import Record
from srtm.http.handler import ApiHandler
from srtm.limits.contract import Contract
from srtm.text.errors import SrtmError, one_line


class _Handler(ApiHandler):
    gateway: Host

    def initialize(self, gateway: Host) -> None:
        self.gateway = gateway


class _Topics(_Handler):
    async def get(self) -> None:
        self.finish(await srtm_document(self.gateway))


class _Topic(_Handler):
    _sender = ""

    async def get(self, name: str) -> None:
        topic = self.gateway.topics.by_name.get(name.encode())
        if topic is None:
            self.refuse(404, f"topic {name} is not known here")
        else:
            self.finish(topic_document(topic))

    async def prepare(self) -> None:
        self._asked: dict[str, Any] = {}
        self._sender = sender_of(self.request)
        if self.request.method != "GET" and self.gateway.topics.is_leased(self.path_args[0]):
            distributor = self.gateway.options.distributor_address
            self.refuse(
                409,
                f"topic {self.path_args[0]}: the Load Distributor at {distributor} gives its "
                "limit; change the contract there",
            )

    async def put(self, name: str) -> None:
        try:
            body: Any = json.loads(self.request.body)
            if not isinstance(body, dict):
                raise ValueError("not an object")
            contract = Contract.model_validate({**body, "topic": name})
            self._asked = contract.document()
            self.gateway.topics.set_limit(name, contract.limit())
            await self.gateway.topics.state_file.written()
        except ValidationError as error:
            self.refuse(400, str(one_line(error, f"topic {name}")))
        except ValueError:
            self.refuse(400, f"topic {name}: the body is not a JSON object")
        except SrtmError as error:
            self.refuse(409, str(error))
        else:
            self.finish(topic_document(self.gateway.topics.by_name[name.encode()]))

    async def delete(self, name: str) -> None:
        self.gateway.topics.set_limit(name, None)
        await self.gateway.topics.state_file.written()
        self.finish({})

    def on_finish(self) -> None:
        if self.request.method != "GET":
            note(self.gateway, self.request, self._sender, self._asked, self.get_status())


class _Record(_Handler):
    """Arrivals and admissions since the last call; the first one switches recording on."""

    async def get(self, name: str) -> None:
        topic = self.gateway.topics.by_name.get(name.encode())
        if topic is None:
            self.refuse(404, f"topic {name} is not known here")
            return
        if topic.record is None:
            topic.record = Record()
        self.finish(topic.record.take())


class _Health(_Handler):
    async def get(self) -> None:
        if self.gateway.watch.ill:
            self.refuse(500, self.gateway.watch.ill)
        else:
            self.finish({"message": "OK"})


def admin_application(gateway: Host) -> Application:
    shared = {"gateway": gateway}
    return Application(
        [
            (r"/topics", _Topics, shared),
            (r"/topics/([^/]+)", _Topic, shared),
            (r"/topics/([^/]+)/record", _Record, shared),
            (r"/health", _Health, shared),
        ],
        log_function=lambda handler: None,
    )
