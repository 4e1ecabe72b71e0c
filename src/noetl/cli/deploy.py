"""`noetl deploy`: manifests of what listens and works on a cluster."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.cluster import Cluster
    from noetl.cli.output import Output
    from noetl.dsl.subscription.document import Subscription


def render(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    subscription: Annotated[
        list[str] | None,
        typer.Option(
            "--subscription",
            metavar="PATH|FILE",
            help="What is listened for: a file, or a path of the catalog; may be repeated.",
        ),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", metavar="NAME", help="Workers of a pool; may be repeated."),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="Where the objects go (noetl).")
    ] = "noetl",
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="The image (noetl:VERSION).")
    ] = None,
    api_url: Annotated[
        str,
        typer.Option(
            "--api-url", metavar="URL", help="The server, from there (http://noetl-server:8082)."
        ),
    ] = "http://noetl-server:8082",
    monitor: Annotated[
        str,
        typer.Option(
            "--nats-monitor",
            metavar="HOST:PORT",
            help="Where NATS tells its lag (nats.nats.svc.cluster.local:8222).",
        ),
    ] = "nats.nats.svc.cluster.local:8222",
    account: Annotated[
        str, typer.Option("--nats-account", metavar="NAME", help="The account there ($G).")
    ] = "$G",
    brokers: Annotated[
        str,
        typer.Option(
            "--brokers", metavar="HOST:PORT,..", help="Those of Kafka, if a credential has them."
        ),
    ] = "",
    token_secret: Annotated[
        str,
        typer.Option(
            "--token-secret",
            metavar="NAME",
            help="Secret with the key `token` (one of each object's name).",
        ),
    ] = "",
    nats_secret: Annotated[
        str,
        typer.Option(
            "--nats-secret", metavar="NAME", help="Secret with the key `url` (noetl-nats)."
        ),
    ] = "noetl-nats",  # noqa: S107 - the name of an object, not what it holds
) -> None:
    """Print Kubernetes manifests of listeners and worker pools, with what scales them (KEDA).

    A subscription gives the Deployment of its listener, a ScaledObject for it when it says
    `scaling.keda`, and a ScaledObject for each pool that its runs may go to; `--pool` gives the
    workers of a pool, too. No manifest holds a secret: those they name are yours to make.
    """
    from noetl import __version__
    from noetl.cli.cluster import Cluster

    out: Output = ctx.obj
    if not subscription and not pool:
        hint = "give `--subscription PATH|FILE` or `--pool NAME`"
        raise CommandFailed("usage", "nothing was named to render", hint=hint)
    cluster = Cluster(
        image=image or f"noetl:{__version__}",
        namespace=namespace,
        server_url=api_url,
        monitor=monitor,
        account=account,
        brokers=brokers,
        token_secret=token_secret,
        nats_secret=nats_secret,
    )
    _show(out, _manifests(out, subscription or [], pool or [], cluster))


def _manifests(
    out: "Output", words: list[str], pools: list[str], cluster: "Cluster"
) -> list[dict[str, Any]]:
    from noetl.cli.manifests import CannotRender, listens_here, of_pool, of_subscription

    found: list[dict[str, Any]] = []
    try:
        for word in words:
            document = _document(out, word)
            found += of_subscription(document, cluster)
            if not listens_here(document.spec):
                out.note(f"{document.metadata.path}: {_elsewhere(document)}")
            _warn(out, document)
        for name in pools:
            found += of_pool(_checked(name), cluster)
    except CannotRender as fault:
        raise CommandFailed("usage", str(fault), hint=fault.hint) from fault
    # Two subscriptions may share a pool: its object comes once.
    once = {(item["kind"], item["metadata"]["name"]): item for item in found}
    return list(once.values())


def _document(out: "Output", word: str) -> "Subscription":
    """A Subscription: of a file, or of the catalog."""
    from pathlib import Path

    from noetl.cli.files import STDIN, SUFFIXES, read

    if word == STDIN or word.endswith(SUFFIXES) or Path(word).is_file():
        source = read(word)
        return _parsed(out, source.name, source.data)
    from noetl.cli.remote import ask

    path = word.removeprefix("catalog://").removeprefix("subscription/")
    entry = ask(out, lambda client: client.resolve(path))
    return _parsed(out, entry.path, entry.content.encode())


def _parsed(out: "Output", name: str, data: bytes) -> "Subscription":
    from noetl.cli.findings import Finding, Found, refused, tell
    from noetl.cli.parsing import parsed_here
    from noetl.dsl.subscription.document import Subscription

    parsed = parsed_here(data)
    if isinstance(parsed.model, Subscription):
        return parsed.model
    errors = tuple(Finding(name, item) for item in parsed.errors)
    if not errors:
        message = f"{name} is a {parsed.kind}, not a Subscription"
        raise CommandFailed("invalid_playbook", message, hint="only a Subscription is listened for")
    tell(out, errors)
    raise refused(Found(files=1, items=errors, overflow=parsed.overflow))


def _elsewhere(document: "Subscription") -> str:
    """Who listens, when no process of the cluster does."""
    spec = document.spec
    if spec.mode == "push":
        return "the gateway listens"
    if spec.activation == "scheduled":
        return f"the server drains it, on the pool {spec.runtime.pool}"
    if spec.runtime.target == "cloud-run":
        return "Cloud Run listens: see deploy/cloud-run"
    return "it is listened for by hand: `runtime.target` is local"


def _warn(out: "Output", document: "Subscription") -> None:
    """What a person has to see to."""
    from noetl.cli.manifests import listener_name, listens_here

    spec, path = document.spec, document.metadata.path
    keda = spec.scaling.keda if spec.scaling else None
    if keda is None or not listens_here(spec):
        return
    if spec.auth and keda.trigger != "nats-jetstream":
        name = listener_name(path)
        out.note(f"{path}: KEDA needs a TriggerAuthentication `{name}`, with what it asks with")
    if keda.min == 0 and spec.spool is not None and spec.spool.mode not in {None, "off"}:
        out.note(f"{path}: with `min: 0` what waits in the spool waits until a message comes")


def _checked(pool: str) -> str:
    import re

    from noetl.dsl.subscription.sections import POOL_PATTERN

    if not re.fullmatch(POOL_PATTERN, pool):
        hint = "lower-case letters, digits, `_` and `-`; 63 at most"
        raise CommandFailed("usage", f"`{pool}` is not the name of a pool", hint=hint)
    return pool


def _show(out: "Output", found: list[dict[str, Any]]) -> None:
    from noetl.cli.text import yaml_text

    if out.format == "json":
        out.document({"apiVersion": "v1", "kind": "List", "items": found})
    else:
        out.write("---\n".join(yaml_text(item) for item in found))


COMMAND = Group(
    about="Print manifests of what listens and works on a cluster.",
    commands={
        "render": Spec(
            run=render,
            outputs=("table", "yaml", "json"),
            examples=(
                "noetl deploy render --subscription examples/subscriptions/readings.yaml",
                "noetl deploy render --pool iot --namespace plant | kubectl apply -f -",
            ),
            takes="nothing",
            is_remote=True,
        ),
    },
    examples=(
        "noetl deploy render --subscription examples/subscriptions/readings.yaml",
        "noetl deploy render --pool iot",
    ),
)
