"""Where HTTP comes in: connections, bodies, problems, and the forms of what goes in and out."""
