"""The kind `snowflake`, and sessions for those who move rows to it and from it."""
