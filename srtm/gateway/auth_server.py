"""Where an auth server is asked, as options and files write it."""

from urllib.parse import urlsplit

from srtm.text.address import Address


class AuthServer:
    """Where one of them is asked."""

    def __init__(self, text: str) -> None:
        """text: HOST:PORT, whose path is /auth, or a URL. Raises ValueError."""
        self.text = text
        self.is_https = text.startswith("https://")
        if "://" not in text:
            self.address, self.path = Address.parse(text).reachable, "/auth"
            return
        url = urlsplit(text)
        if url.scheme not in ("http", "https"):
            raise ValueError(f"{text!r} is neither HOST:PORT nor a URL of http:// or https://")
        if not url.hostname or "@" in url.netloc or url.query or url.fragment:
            raise ValueError(f"{text!r} must be a host, a port where it has one, and a path alone")
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError(f"{text!r} holds what no URL has; write it as %20")
        try:
            port = url.port or (443 if self.is_https else 80)
        except ValueError:
            raise ValueError(f"the port of {text!r} is not a number from 1 to 65535") from None
        self.address = Address(url.hostname, port)
        self.path = url.path or "/"
