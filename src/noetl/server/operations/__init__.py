"""What operators rely on: schedules, imports, publications, upkeep, figures."""
