-- What retention looks for, and how it lets go of a month.

create index execution_unexported on noetl.execution (execution_id) where unexported;
create index outbox_published on noetl.outbox (published_at) where published_at is not null;

-- The months of `event` and `log`, with the ids that belong to each.
create function noetl.months()
returns table (name text, parent text, low bigint, high bigint)
language sql stable as $$
    select part.relname::text, whole.relname::text,
        noetl.first_id(month at time zone 'UTC'),
        noetl.first_id((month + interval '1 month') at time zone 'UTC')
    from pg_inherits
    join pg_class part on part.oid = inhrelid
    join pg_class whole on whole.oid = inhparent,
    lateral (
        select to_timestamp(right(part.relname, 7), 'YYYY_MM')::timestamp as month
        where part.relname ~ '_\d{4}_\d{2}$') as named
    where whole.relname in ('event', 'log') and whole.relnamespace = 'noetl'::regnamespace
$$;

-- Some of the runs that keep the rows of a range: they live, or hold what was not exported. Runs
-- that were imported are driven elsewhere and never count as alive.
create function noetl.blockers(low bigint, high bigint, most int) returns bigint[]
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
        order by execution_id limit most) as kept
$$;

-- Drop one month unless something keeps it. Nobody waits long for the lock that this needs: a
-- reader that holds it up has it tried again later.
create function noetl.drop_month(part text) returns bigint[]
language plpgsql as $$
declare
    month record;
    kept bigint[];
begin
    perform set_config('lock_timeout', '2s', true);
    perform pg_advisory_xact_lock(hashtextextended('noetl:partitions', 0));
    select * into month from noetl.months() as known where known.name = part;
    if not found then
        return '{}';
    end if;
    execute format('lock table noetl.%I in access exclusive mode', month.parent);
    kept := noetl.blockers(month.low, month.high, 10);
    if kept = '{}' then
        execute format('drop table noetl.%I', part);
    end if;
    return kept;
end
$$;
