"""The pipeline of a command, made again when a rule reads a value that lies elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.dsl.views import NeedsObject, Outcome, Reference
from noetl.engine.pipeline import MOST_RUNS, Pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.commands import Command
    from noetl.dsl.playbook import Step
    from noetl.dsl.tasks.task import Output, TaskSpec
    from noetl.worker.tasks import Tasks


class Stepper:
    """Makes the pipeline of a command, again when a rule reads a value that lies elsewhere."""

    def __init__(
        self,
        step: Step,
        command: Command,
        defaults: TaskSpec | None,
        tasks: Tasks,
        limit: int = MOST_RUNS,
    ) -> None:
        self.step = step
        self.command = command
        self.output: Output | None = None
        """How its result is kept."""
        self._defaults = defaults
        self._tasks = tasks
        self._limit = limit
        refs = command.context.refs
        self._refs = msgspec.convert(refs, dict[str, Reference]) if refs else {}

    def begin(self, checkpoint: Mapping[str, Any] | None) -> Pipeline:
        """The pipeline from its first task, or from where it was."""
        command = self.command
        return Pipeline(
            self.step,
            command.context.bindings,
            execution_id=command.execution_id,
            command_key=command.command_key,
            idempotency_key=command.idempotency_key,
            refs=self._refs,
            resolved=self._tasks.resolved,
            checkpoint=checkpoint,
            defaults=self._defaults,
            limit=self._limit,
        )

    async def settle(self, pipeline: Pipeline, outcome: Outcome) -> Pipeline:
        """Report an outcome; a report that stops half-way is made again on a fresh pipeline."""
        if not self._refs:
            pipeline.report(outcome)
            return pipeline
        before = pipeline.checkpoint()
        while True:
            try:
                pipeline.report(outcome)
            except NeedsObject as need:
                await self._tasks.fetch(need.reference)
                pipeline = self.begin(before)
                await self._tasks.following(pipeline)
            else:
                return pipeline
