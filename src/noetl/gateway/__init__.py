"""The only door for people, browsers, agents and webhooks: it knows them, forwards and streams."""
