"""The servers that tests share."""

pytest_plugins = ["tests.servers.postgres", "tests.servers.nats"]
