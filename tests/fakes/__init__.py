"""Stand-ins for services that cannot run here: small, served on a real socket, strict."""
