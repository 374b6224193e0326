"""TLS, compression and AUTH of a publisher's connections."""

from typing import Any

from srtm.nsq.connection import Features
from srtm.text.errors import UsageError, one_line


def features(**options: Any) -> Features:
    """What `Publisher` takes as its `features`, by go-nsq's and pynsq's names.

    tls_v1, tls_root_ca_file, tls_cert, tls_key, tls_server_name: TLS, verified by the authority of
    the file or by those of this host; snappy, deflate, deflate_level: compression;
    auth_secret_file: a file of mode 0600 with the secret for AUTH. Raises UsageError.
    """
    from pydantic import ValidationError

    from srtm.options.nsq import NsqOptions  # a twentieth of a second to import

    unknown = [name for name in options if name not in NsqOptions.model_fields]
    if unknown:
        raise UsageError(f"features({unknown[0]}=): there is no such option")
    try:
        found = NsqOptions(**options)
        found.check_together()
    except ValidationError as error:
        raise one_line(error, "features()") from None
    except ValueError as error:
        raise UsageError(f"features(): {error}") from None
    return found.features()
