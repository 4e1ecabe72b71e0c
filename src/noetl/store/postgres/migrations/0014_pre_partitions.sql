-- Making a month waits no longer for the locks that it needs than dropping one does: whoever holds
-- it up has it tried again later, and nobody queues behind it for long.
alter function noetl.ensure_partitions(timestamptz, int) set lock_timeout = '2s';
