"""Tests of playbooks as a server plays them: in a child that knows nothing of the server."""
