"""Why TLS failed, and how that is mended, in one line."""

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


def why_not_accepted(error: ssl.SSLCertVerificationError) -> str:
    """What was wrong with the other side's certificate, and the remedy where there is one."""
    reason = error.verify_message.rstrip(".")
    remedy = _REMEDIES.get(error.verify_code)
    return f"{reason}; {remedy}" if remedy else reason


_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it takes only clients that show a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate that it was shown has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the certificate that it was shown is not for clients",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak this version of TLS",
}
"""what the other side says of us"""


def why_tls_failed(error: Exception) -> str:
    """The reason of an `ssl.SSLError` as a person says it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {why_not_accepted(error)}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
            return "it does not answer in TLS; is it a port of plain text?"
        if error.reason in _ALERTS:
            return _ALERTS[error.reason]
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(error)
