"""The keys by which a program of a journey reaches `srtm journey run`."""

from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, model_validator

from srtm.http.service import ClientFiles
from srtm.options.tls import check_client
from srtm.text.address import Address


def address_text(value: object) -> object:
    """The address in its usual form; what is no text or empty is left. Raises ValueError."""
    return str(Address.parse(value)) if isinstance(value, str) and value else value


class JourneyClient(BaseModel):
    """Fields of a table of its file. journey-address: of `srtm journey run`; empty: none is told"""

    journey_address: Annotated[str, BeforeValidator(address_text)] = ""
    journey_token_file: str = ""
    journey_tls_root_ca_file: str = ""
    journey_tls_cert: str = ""
    journey_tls_key: str = ""

    @model_validator(mode="after")
    def _check_journey(self) -> Self:
        files = self.journey_files
        if not self.journey_address and files != ClientFiles():
            raise ValueError("keys of journey-... need journey-address: that of srtm journey run")
        check_client("journey", files.root_ca, files.cert, files.key)
        return self

    @property
    def journey_files(self) -> ClientFiles:
        """By which `srtm journey run` is reached."""
        return ClientFiles(
            self.journey_token_file,
            self.journey_tls_root_ca_file,
            self.journey_tls_cert,
            self.journey_tls_key,
        )
