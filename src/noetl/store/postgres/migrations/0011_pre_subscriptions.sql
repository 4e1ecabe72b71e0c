-- The log of a subscription: how far it is, and what its newest events say. Ends of the runs that
-- its messages started are told in the order in which they became visible to all: by transaction.

alter table noetl.subscription
    add column last_seq int not null default 0,
    add column last_event_id bigint,
    add column last_execution_id bigint,
    add column summary json not null default '{}';
comment on column noetl.subscription.last_execution_id is 'The run of the last tick.';
create index subscription_due on noetl.subscription (next_tick_at) where next_tick_at is not null;

create table noetl.subscription_outcome (
    subscription_id bigint not null,
    xid xid8 not null default pg_current_xact_id(),
    execution_id bigint not null,
    at timestamptz not null default now(),
    primary key (subscription_id, xid, execution_id)
);
create index subscription_outcome_age on noetl.subscription_outcome (at);

alter table noetl.dead_letter add column result_ref text;
create index dead_letter_age on noetl.dead_letter (subscription_id, at, ref collate "C");

-- A month also holds the logs of the subscriptions that were registered in it, for ever.
create or replace function noetl.blockers(low bigint, high bigint, most int) returns bigint[]
language sql stable as $$
    select coalesce(array_agg(execution_id order by execution_id), '{}') from (
        (select execution_id from noetl.execution
            where completed_at is null and kind <> 'imported'
                and execution_id >= low and execution_id < high
            order by execution_id limit most)
        union
        (select execution_id from noetl.execution
            where unexported and execution_id >= low and execution_id < high
            order by execution_id limit most)
        union
        (select subscription_id from noetl.subscription
            where subscription_id >= low and subscription_id < high
            order by subscription_id limit most)
        order by execution_id limit most) as kept
$$;
