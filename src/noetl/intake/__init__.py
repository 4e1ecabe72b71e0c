"""Messages become executions: the one engine of listeners, ticks, webhooks and the command line."""
