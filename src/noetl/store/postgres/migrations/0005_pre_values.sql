-- Variables, results and callbacks: what users own is `json`, as everywhere; results are listed and
-- swept in the order of their names.

alter table noetl.transient alter column var_value type json using var_value::json;
alter table noetl.callback_held alter column body type json using body::json;
create index result_by_key on noetl.result (ref collate "C");
create index result_of_run on noetl.result (execution_id, ref collate "C");
create index result_of_step on noetl.result (execution_id) where scope = 'step';
create index transient_expiry on noetl.transient (expires_at) where expires_at is not null;
create index callback_held_expiry on noetl.callback_held (expires_at);
create index request_result_expiry on noetl.request_result (expires_at);
