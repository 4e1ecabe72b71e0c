-- Lists of runs by any one filter cost as much as their page, however long the history is: each
-- filter has an index in the order of the list. That order is written `-execution_id`, which no
-- other index has: whatever the planner believes about how often a value comes, it cannot prefer to
-- walk through all runs until enough of them fit. No index is on what changes between the start
-- and the end of a run, so that the commits in between stay HOT.

drop index noetl.execution_by_status, noetl.execution_by_path, noetl.execution_children,
    noetl.execution_by_document, noetl.execution_client;
create index execution_by_status on noetl.execution (tenant_id, status, (-execution_id));
create index execution_by_path
    on noetl.execution (tenant_id, path text_pattern_ops, (-execution_id));
create index execution_children on noetl.execution (parent_execution_id, (-execution_id))
    where parent_execution_id is not null;
create index execution_by_document on noetl.execution (catalog_id, (-execution_id));
create index execution_client on noetl.execution (client_id, (-execution_id))
    where client_id is not null;
create index execution_by_pool on noetl.execution (tenant_id, pool, (-execution_id));
create index execution_by_author on noetl.execution (tenant_id, created_by, (-execution_id));
create index execution_by_version on noetl.execution (tenant_id, version, (-execution_id));
create index execution_roots on noetl.execution (tenant_id, (-execution_id))
    where parent_execution_id is null;
create index execution_with_error on noetl.execution (tenant_id, (-execution_id))
    where error is not null;
-- Runs without an error are found by their status; failed ones that tell none are few or none.
create index execution_failed_mutely on noetl.execution (tenant_id, (-execution_id))
    where status = 'FAILED' and error is null;
-- The beginning alone: a whole message may be longer than an entry of an index. A column of its
-- own, so that the ids of all messages that begin alike are read from the index without their runs.
alter table noetl.execution
    add column error_beginning text generated always as (left(error_message, 120)) stored;
create index execution_by_message
    on noetl.execution (tenant_id, error_beginning text_pattern_ops, execution_id)
    where error_beginning is not null;

-- Labels in the order of the list, which the index over whole maps of labels does not have.
create table noetl.execution_label (
    tenant_id text not null,
    name text not null,
    value text not null,
    execution_id bigint not null,
    primary key (tenant_id, name, value, execution_id)
);
create function noetl.write_labels() returns trigger
language plpgsql as $$
begin
    insert into noetl.execution_label (tenant_id, name, value, execution_id)
    select new.tenant_id, name, told #>> '{}', new.execution_id
    from jsonb_each(new.labels) as label(name, told)
    where jsonb_typeof(told) = 'string' and length(name) + length(told #>> '{}') <= 600
    on conflict do nothing;
    return null;
end
$$;
create function noetl.forget_labels() returns trigger
language plpgsql as $$
begin
    delete from noetl.execution_label
    using jsonb_each(old.labels) as label(key, told)
    where tenant_id = old.tenant_id and name = key and value = told #>> '{}'
        and execution_id = old.execution_id;
    return null;
end
$$;
insert into noetl.execution_label (tenant_id, name, value, execution_id)
select tenant_id, name, told #>> '{}', execution_id
from noetl.execution, jsonb_each(labels) as label(name, told)
where labels <> '{}' and jsonb_typeof(told) = 'string'
    and length(name) + length(told #>> '{}') <= 600;
create trigger execution_labelled after insert on noetl.execution
    for each row when (new.labels <> '{}') execute function noetl.write_labels();
create trigger execution_unlabelled after delete on noetl.execution
    for each row when (old.labels <> '{}') execute function noetl.forget_labels();

-- An id tells when it was made, so times are looked for by ids. Runs whose start lies more than an
-- hour away from their id (imported ones, mostly) are few, and the planner is to know that.
create index execution_displaced on noetl.execution (tenant_id, (-execution_id))
    where abs(date_part('epoch', started_at - timestamptz '2024-01-01 00:00:00+00') * 1000
        - (execution_id >> 22)) > 3600000;
create statistics noetl.execution_displacement
    on (abs(date_part('epoch', started_at - timestamptz '2024-01-01 00:00:00+00') * 1000
        - (execution_id >> 22))) from noetl.execution;

-- Lines are read in the order of time.
create index log_by_time on noetl.log (execution_id, ts, command_id, attempt, n);
