"""How a gateway's connection begins to go on with reports (see `lines`)."""

from http import HTTPStatus

from tornado.iostream import IOStream, SSLIOStream, StreamClosedError

from distributor.errors import Forbidden
from distributor.http.handler import Handler
from distributor.http.lines import PlainLines, Reporter, SecureLines, open_plain
from distributor.http.routes import REPORT, Call
from srtm.http.exchange import REPORTS_PROTOCOL


class Reports(Handler):
    """Goes on with REPORTS_PROTOCOL: each line is a report of the broker of the path."""

    role = REPORT.role

    def check_role(self) -> None:
        try:
            super().check_role()
        except Forbidden:
            self.note(None, HTTPStatus.FORBIDDEN)
            raise

    async def answer(self, name: str) -> None:  # type: ignore[override]
        try:
            REPORT.check_broker(self.caller, Call((name,), None))
            self.leading().gateway(name)
        except Exception as error:
            if isinstance(error, Forbidden):
                self.note(None, HTTPStatus.FORBIDDEN)
            self.fail(error)
            return
        if self.request.headers.get("Upgrade", "").lower() != REPORTS_PROTOCOL:
            self.set_header("Upgrade", REPORTS_PROTOCOL)
            self.refuse(
                HTTPStatus.UPGRADE_REQUIRED, f"this path is for the protocol {REPORTS_PROTOCOL}"
            )
            return
        shown = self.shared.access.shown(self.request)
        self.set_status(HTTPStatus.SWITCHING_PROTOCOLS)
        self.clear_header("Content-Type")
        self.set_header("Connection", "Upgrade")
        self.set_header("Upgrade", REPORTS_PROTOCOL)
        self.finish()
        stream: IOStream = self.detach()
        stream.set_nodelay(True)
        lines, caller, access = self.shared.lines, self.caller, self.shared.access
        reporter = Reporter(self.leading, name, self.shared.held)

        def is_known() -> bool:
            return access.caller(*shown) == caller

        def opened(line: PlainLines | SecureLines) -> None:
            if name in lines:
                lines[name].close()  # one for each broker: the others would only take room
            lines[name] = line

        def closed(line: PlainLines | SecureLines) -> None:
            if lines.get(name) is line:
                del lines[name]

        unread = self.shared.answers
        if isinstance(stream, SSLIOStream):
            line = SecureLines(stream, reporter, is_known, unread)
            opened(line)
            await line.run()
            closed(line)
            return
        try:
            await open_plain(
                stream,
                lambda came: PlainLines(came, reporter, is_known, unread, opened, closed),
            )
        except (OSError, StreamClosedError):
            stream.close()
