-- The result of a request beside its row, when it is small: one commit keeps both.

alter table noetl.request_result
    add column body bytea,
    add column media_type text;
comment on column noetl.request_result.body is 'The result; none when it lies in the object store.';
