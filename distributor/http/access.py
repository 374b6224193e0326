"""Who may call: whoever knows the bearer token."""

import hmac


def allowed(header: str | None, token: str | None) -> bool:
    """Does an Authorization header carry `token`? Without a token everybody may call."""
    if token is None:
        return True
    expected = f"Bearer {token}".encode()
    return hmac.compare_digest((header or "").encode("utf-8", "replace"), expected)
