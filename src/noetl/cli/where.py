"""Which server a command line means, as far as its options say it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options of a command that talks to a server."""

    context: str | None = None
    server_url: str | None = None
    host: str | None = None
    port: int | None = None
    token_file: str | None = None
    session_token: str | None = field(default=None, repr=False)
    request_timeout: float = 30.0
    gateway: bool = False
    """Whether the gateway is meant, and not the server behind it."""
