"""The servers that tests share, and what Hypothesis may not judge."""

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.servers.postgres",
    "tests.servers.nats",
    "tests.servers.kafka",
    "tests.servers.pubsub",
    "tests.servers.mcp",
    "tests.servers.objects",
    "tests.servers.gcs",
    "tests.servers.stack",
    "tests.servers.gateway",
]

# How long an example takes, or takes to be made, tells how busy the machine is.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")
