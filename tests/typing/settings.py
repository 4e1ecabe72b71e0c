"""The user's view of the settings: read once, frozen, typed."""

from typing import assert_type

from noetl.settings import SETTINGS, CliSettings, Setting, warnings

settings = CliSettings.read({"COLUMNS": "80"})
assert_type(settings.output, str)
assert_type(settings.columns, int | None)
assert_type(settings.is_plain, bool)
assert_type(warnings({}), list[str])
assert_type(SETTINGS[0], Setting)
settings.output = "json"  # type: ignore[misc]  # a frozen model refuses assignment
