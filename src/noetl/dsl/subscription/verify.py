"""Models of `ingress.verify`: one per scheme with which a delivery proves where it comes from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    Constraint,
    Data,
    Definitions,
    ExactlyOne,
    Flag,
    JsonSchema,
    ListOf,
    Model,
    NotBoth,
    Of,
    Text,
    key,
    model,
    whole,
)
from noetl.dsl.subscription.sections import ALIASES, Alias, Header, Tagged, word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = frozenset({"body", "timestamp", "id", "method", "path"})
_TOLERANCE = whole(30, 900)
_LEEWAY = whole(0, 300)
_TYPES = (
    "hmac_sha256", "stripe", "github", "slack", "standard_webhooks", "svix", "shopify", "ed25519",
    "bearer", "basic", "api_key", "pubsub_oidc", "jwt", "oidc",
)  # fmt: skip


class SignedText:
    """What a signature covers: text with placeholders such as `{body}`."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read the text; every placeholder is known, and the body is covered."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        hint = "use {body} {timestamp} {id} {method} {path} {header:NAME}"
        names = placeholders(value)
        wrong = [name for name in names if name not in _PLACEHOLDERS and not _is_header(name)]
        if wrong or set("{}") & set(_PLACEHOLDER.sub("", value)):
            shown = f"`{{{wrong[0][:40]}}}`" if wrong else "a lone brace"
            reader.report("DSL039", f"{shown} is not a placeholder", place, hint=hint)
        elif "body" not in names:
            reader.report("DSL039", "the signature must cover `{body}`", place, hint=hint)
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string."""
        del definitions
        return {"type": "string"}

    def words(self) -> str:
        """A signed text."""
        return "text with {body}, {timestamp}, {id}, {method}, {path}, {header:NAME}"


def placeholders(template: str) -> tuple[str, ...]:
    """The names that stand in braces in the template of a signature."""
    return tuple(_PLACEHOLDER.findall(template))


def _is_header(name: str) -> bool:
    return name.startswith("header:") and len(name) > len("header:")


@model
class Verify(Model):
    """How a delivery proves where it comes from."""

    signature_header: ClassVar[str] = ""
    is_token: ClassVar[bool] = False
    """Whether its header is the credential itself, and no proof of one: it is kept nowhere."""

    type: str = key(word(*_TYPES), "scheme")

    @property
    def signed_by(self) -> str:
        """The header that carries the signature, key or token, in lower case."""
        return getattr(self, "header", "") or self.signature_header


@model
class SecretVerify(Verify):
    """A scheme with a shared secret."""

    secret: tuple[str, ...] = key(ALIASES, "credentials, any may match (rotation)")


@model
class StampedVerify(SecretVerify):
    """A scheme with a shared secret and a signed time."""

    tolerance_secs: int = key(_TOLERANCE, "how old or early a delivery may be", default=300)


@model
class GithubVerify(SecretVerify):
    """GitHub: HMAC over the body."""

    signature_header: ClassVar[str] = "x-hub-signature-256"


@model
class ShopifyVerify(SecretVerify):
    """Shopify: HMAC over the body."""

    signature_header: ClassVar[str] = "x-shopify-hmac-sha256"


@model
class StripeVerify(StampedVerify):
    """Stripe: HMAC over time and body."""

    signature_header: ClassVar[str] = "stripe-signature"


@model
class SlackVerify(StampedVerify):
    """Slack: HMAC over version, time and body."""

    signature_header: ClassVar[str] = "x-slack-signature"


@model
class StandardVerify(StampedVerify):
    """Standard Webhooks: id, time and body."""

    signature_header: ClassVar[str] = "webhook-signature"


@model
class SvixVerify(StampedVerify):
    """Svix: id, time and body."""

    signature_header: ClassVar[str] = "svix-signature"


@model
class Timestamp(Model):
    """The signed time of a delivery."""

    header: str = key(Header(), "header with the time")
    tolerance_secs: int = key(_TOLERANCE, "how old or early a delivery may be", default=300)


@model
class DeliveryId(Model):
    """The sender's own id of a delivery."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("header", "body")),)

    header: str | None = key(Header(), "header with the id", default=None)
    body: str | None = key(Text(), "path of the id in the body", default=None)


@model
class SignedVerify(Verify):
    """A signature over a text of your own."""

    header: str = key(Header(), "header with the signature", default="x-signature")
    encoding: str = key(word("hex", "base64", "base64url"), "of the signature", default="hex")
    prefix: str | None = key(Text(), "before the signature (`sha256=` always is)", default=None)
    template: str | None = key(SignedText(), "what is signed ({body})", default=None)
    timestamp: Timestamp | None = key(Of(Timestamp), "the signed time", default=None)
    id: DeliveryId | None = key(Of(DeliveryId), "the sender's id", default=None)


@model
class HmacVerify(SignedVerify):
    """HMAC over a text of your own."""

    secret: tuple[str, ...] = key(ALIASES, "credentials, any may match (rotation)")
    algorithm: str = key(word("sha256", "sha512"), "hash", default="sha256")

    @property
    def scheme(self) -> str:
        """The verifier to use: a provider's own when only its header is named."""
        return self.type if self.template else _PROVIDERS.get(self.header, self.type)


_PROVIDERS = {
    cls.signature_header: name
    for name, cls in (("stripe", StripeVerify), ("github", GithubVerify), ("slack", SlackVerify))
}


@model
class Ed25519Verify(SignedVerify):
    """Ed25519 over a text of your own."""

    public_key: tuple[str, ...] = key(
        ALIASES, "credentials with the public key", aliases=("secret",)
    )


@model
class BearerVerify(Verify):
    """A bearer token."""

    is_token: ClassVar[bool] = True

    header: str = key(Header(), "header with the token", default="authorization")
    secret: tuple[str, ...] = key(ALIASES, "credentials, any may match", aliases=("token",))


@model
class BasicVerify(Verify):
    """User and password."""

    signature_header: ClassVar[str] = "authorization"
    is_token: ClassVar[bool] = True

    user: str = key(Alias(), "credential with the user", aliases=("username",))
    password: tuple[str, ...] = key(ALIASES, "credentials with the password, any may match")


@model
class ApiKeyVerify(Verify):
    """A key in a header, or where allowed in the query."""

    is_token: ClassVar[bool] = True

    header: str = key(Header(), "header with the key", default="x-api-key")
    query: str | None = key(Text(), "query parameter with the key", default=None)
    allow_query: bool = key(Flag(), "accept the key in the query", default=False)
    secret: tuple[str, ...] = key(ALIASES, "credentials, any may match", aliases=("key",))


@model
class PubsubVerify(Verify):
    """Google's signed token on a Pub/Sub push."""

    signature_header: ClassVar[str] = "authorization"
    is_token: ClassVar[bool] = True

    audience: str = key(Text(), "audience of the token")
    service_account: str = key(Text(), "e-mail of the pushing account")
    leeway_secs: int = key(_LEEWAY, "clock difference allowed", default=60)


@model
class JwtVerify(Verify):
    """A signed token of an issuer."""

    is_token: ClassVar[bool] = True
    constraints: ClassVar[tuple[Constraint, ...]] = (NotBoth(("jwks_url", "key")),)

    header: str = key(Header(), "header with the token", default="authorization")
    issuer: str = key(Text(), "issuer of the token")
    audience: str = key(Text(), "audience of the token")
    algorithms: tuple[str, ...] = key(
        ListOf(word("rs256", "es256", "eddsa", "hs256"), least=1),
        "signatures accepted",
        default=("rs256", "es256", "eddsa"),
    )
    claims: Mapping[str, Any] = key(
        Data(only="map"), "claims that must be equal", default_factory=dict
    )
    jwks_url: str | None = key(
        Text(pattern=r"^https://\S+$"), "key set (default: the issuer's discovery)", default=None
    )
    key_: tuple[str, ...] = key(
        ALIASES, "credentials with the key", name="key", aliases=("secret",), default=()
    )
    leeway_secs: int = key(_LEEWAY, "clock difference allowed", default=60)


VERIFIERS: Mapping[str, type[Verify]] = {
    "hmac_sha256": HmacVerify,
    "stripe": StripeVerify,
    "github": GithubVerify,
    "slack": SlackVerify,
    "standard_webhooks": StandardVerify,
    "svix": SvixVerify,
    "shopify": ShopifyVerify,
    "ed25519": Ed25519Verify,
    "bearer": BearerVerify,
    "basic": BasicVerify,
    "api_key": ApiKeyVerify,
    "pubsub_oidc": PubsubVerify,
    "jwt": JwtVerify,
    "oidc": JwtVerify,
}
_NONE = {"none": ("verify_none", "every delivery must be verified; `none` is not allowed")}
VERIFY = Tagged(VERIFIERS, refused=_NONE)
