"""The embedded stack: real parts as processes under one folder, watched by one supervisor."""
