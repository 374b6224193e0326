"""How clients of ours speak to nsqd or a gateway, by the names that go-nsq and pynsq have for it.

A table of a file has these options as keys, a program as flags.
"""

from pydantic import BaseModel, Field

from srtm.host.certificates import TlsFiles, client_context
from srtm.http.bearer import read_token
from srtm.nsq.connection import PLAIN, Features
from srtm.text.errors import UsageError


class NsqOptions(BaseModel):
    """TLS, compression and AUTH, each where the other side has it."""

    tls_v1: bool = Field(False, description="speak TLS with nsqd or the gateway")
    tls_root_ca_file: str = Field(
        "", description="file of PEM with the authority of its certificate; default: this host's"
    )
    tls_cert: str = Field("", description="file of PEM with a certificate to show")
    tls_key: str = Field("", description="file of PEM with the key of tls-cert")
    tls_server_name: str = Field(
        "", description="name in its certificate; default: the host of the address"
    )
    snappy: bool = Field(False, description="compress with snappy")
    deflate: bool = Field(False, description="compress with deflate")
    deflate_level: int = Field(6, ge=1, le=9, description="level of deflate")
    auth_secret_file: str = Field("", description="file of mode 0600 with the secret for AUTH")

    def check_together(self) -> None:
        """Raises ValueError."""
        if self.snappy and self.deflate:
            raise ValueError("snappy and deflate exclude each other")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls-cert and tls-key go together")
        for name in ("tls_root_ca_file", "tls_cert", "tls_server_name"):
            if getattr(self, name) and not self.tls_v1:
                raise ValueError(f"{name.replace('_', '-')} has no effect without tls-v1")

    def features(self, where: str = "") -> Features:
        """Read the files. where: what stands before the names in errors, such as `--`. Raises
        UsageError."""
        if all(getattr(self, name) == each.default for name, each in _OPTIONS.items()):
            return PLAIN
        tls = None
        if self.tls_v1:
            files = TlsFiles(self.tls_cert, self.tls_key, self.tls_root_ca_file)
            try:
                tls = client_context(files)
            except UsageError as error:
                raise UsageError(f"{where}tls: {error}") from None
        return Features(
            tls=tls,
            server_name=self.tls_server_name,
            auth_secret=read_token(self.auth_secret_file, f"{where}auth-secret-file", shortest=1),
            snappy=self.snappy,
            deflate=self.deflate,
            deflate_level=self.deflate_level,
        )


_OPTIONS = NsqOptions.model_fields
