"""What the author wrote: documents, templates and the names they read; pure, no I/O."""
