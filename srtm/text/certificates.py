"""Why a certificate is not accepted, and how that is mended, in one line."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_UNKNOWN_AUTHORITY = "give the file of its authority"
_OTHER_NAME = "use a name that is in it"
_REMEDIES = {
    9: "is the clock of this host right?",
    10: "renew it",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    26: "issue one for this side: a client's is no server's",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
"""By OpenSSL's number (X509_V_ERR_... of x509_vfy.h)."""


def why_not_accepted(error: "ssl.SSLCertVerificationError") -> str:
    """What was wrong with the other side's certificate, and the remedy where there is one."""
    reason = error.verify_message.rstrip(".")
    remedy = _REMEDIES.get(error.verify_code)
    return f"{reason}; {remedy}" if remedy else reason
