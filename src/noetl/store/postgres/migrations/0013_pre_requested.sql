-- Runs that somebody waits for, in the order of the list: gateways that have lost what they knew of
-- requests look through those of the last day.

create index execution_requested on noetl.execution ((-execution_id)) where request_id is not null;
