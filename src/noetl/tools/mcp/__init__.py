"""MCP servers as tools call them: over HTTP, SSE, or the standard streams of a child."""
