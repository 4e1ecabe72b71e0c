"""Looking into runs: graphs, timelines, reasons, states of the past, and lists as they change."""
