-- The whole schema of one shard and of the cluster. Ids are minted by the application (snowflakes),
-- times are those of the database's clock. What users own is kept as `json`, not `jsonb`: the order
-- of a map and the spelling of a number are part of what a run was decided on. U+0000, which no
-- column can hold, is written as the escape of noetl.store.postgres.documents.

create schema if not exists noetl;

-- ---------------------------------------------------------------------------- runs

create table noetl.execution (
    execution_id bigint primary key,
    tenant_id text not null default 'default',
    organization_id text not null default 'default',
    catalog_id bigint not null,
    path text not null,
    version int not null,
    kind text not null default 'playbook',
    status text not null
        check (status in ('PENDING', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED')),
    last_seq int not null,
    last_event_id bigint not null,
    last_event_type text not null default '',
    current_steps text[] not null default '{}',
    steps json,
    event_count int not null default 0,
    pending_commands int not null default 0,
    workload json,
    result json,
    error json,
    error_message text,
    labels jsonb not null default '{}',
    trace json,
    pool text not null,
    priority int not null,
    concurrency_key text,
    dedup_key text,
    request_id text,
    client_id text,
    parent_execution_id bigint,
    parent_key text,
    root_execution_id bigint,
    forked_from json,
    rerun_of bigint,
    created_by text not null default '',
    origin text not null default '',
    unexported boolean not null default false,
    snapshot bytea,
    snapshot_seq int,
    started_at timestamptz not null,
    completed_at timestamptz,
    updated_at timestamptz not null
) with (fillfactor = 70);
comment on column noetl.execution.steps is 'Progress: how many steps there are, ran, failed.';
create index execution_newest on noetl.execution (tenant_id, execution_id desc);
create index execution_by_status on noetl.execution (tenant_id, status, execution_id desc);
create index execution_by_path
    on noetl.execution (tenant_id, path text_pattern_ops, execution_id desc);
create index execution_children
    on noetl.execution (parent_execution_id, execution_id desc)
    where parent_execution_id is not null;
create index execution_labels on noetl.execution using gin (labels jsonb_path_ops)
    where labels <> '{}';
-- Not on updated_at: an index on what every commit changes would cost each of them a new entry in
-- every index of the table (no HOT update). The runs that live are few enough to be read.
create index execution_live on noetl.execution (execution_id) where completed_at is null;
create index execution_request on noetl.execution (request_id) where request_id is not null;
create index execution_client on noetl.execution (client_id) where client_id is not null;
create index execution_holders on noetl.execution (concurrency_key)
    where completed_at is null and concurrency_key is not null;

-- `{status [, context] [, reference]}`, the one form of a result.
create function noetl.is_result(told json) returns boolean
language plpgsql immutable strict parallel safe as $$
declare
    value jsonb := told::jsonb;
begin
    return jsonb_typeof(value) = 'object'
        and coalesce(jsonb_typeof(value -> 'status') = 'string', false)
        and coalesce(jsonb_typeof(value -> 'context') = 'object', true)
        and coalesce(jsonb_typeof(value -> 'reference') = 'object', true)
        and value - array['status', 'context', 'reference'] = '{}';
end
$$;

create table noetl.event (
    execution_id bigint not null,
    seq int not null,
    event_id bigint not null,
    prev_event_id bigint,
    event_type text not null,
    step text not null,
    node_id text not null,
    node_type text not null,
    status text not null,
    command_id bigint,
    attempt int,
    iteration int,
    worker_id text,
    parent_event_id bigint,
    created_at timestamptz not null default now(),
    event_time timestamptz,
    duration_ms double precision,
    context json,
    result json check (noetl.is_result(result)),
    meta json,
    error json,
    trace json,
    correlation_id text,
    idempotency_key text,
    stack_trace text,
    primary key (execution_id, seq),
    -- The id first: the same index says that an event is stored once and finds it by its id alone.
    constraint event_once unique (event_id, execution_id)
) partition by range (execution_id);
create unique index event_one_end on noetl.event (execution_id)
    where event_type in ('playbook.completed', 'playbook.failed', 'playbook.cancelled');
create table noetl.event_default partition of noetl.event default;

create table noetl.command (
    execution_id bigint not null,
    command_id bigint not null,
    command_key text not null,
    step text not null,
    tool_kind text not null,
    pool text,
    priority int not null,
    status text not null
        check (status in ('PENDING', 'CLAIMED', 'PARKED', 'COMPLETED', 'FAILED', 'CANCELLED')),
    is_paused boolean not null default false,
    attempt int not null,
    losses int not null default 0,
    max_attempts int not null default 3,
    worker_id text,
    claimed_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    lease_until timestamptz,
    available_at timestamptz,
    hinted_at timestamptz,
    iteration int,
    checkpoint json,
    is_kept boolean not null default false,
    context json,
    meta json,
    error json,
    primary key (execution_id, command_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02);
comment on column noetl.command.is_paused is 'Its run is paused: nobody may claim it.';
comment on column noetl.command.is_kept is 'The checkpoint was told by a beat.';
create index command_by_id on noetl.command (command_id);
create index command_claimable
    on noetl.command (pool, priority desc, available_at, command_id)
    where status = 'PENDING' and not is_paused;
create index command_unhinted on noetl.command (hinted_at)
    where status = 'PENDING' and not is_paused;
create index command_leases on noetl.command (lease_until) where status = 'CLAIMED';
create index command_held on noetl.command (worker_id) where status = 'CLAIMED';

create table noetl.outbox (
    outbox_id bigint primary key,
    execution_id bigint not null,
    kind text not null,
    event_id bigint,
    first_seq int,
    last_seq int,
    subject text,
    payload json,
    payload_codec text not null default 'json',
    status text not null default 'PENDING',
    attempts int not null default 0,
    available_at timestamptz not null default now(),
    locked_at timestamptz,
    published_at timestamptz,
    last_error text
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create index outbox_waiting on noetl.outbox (available_at, outbox_id) where published_at is null;

create table noetl.timer (
    execution_id bigint not null,
    timer_key text not null,
    due_at timestamptz not null,
    kind text not null,
    payload json,
    is_paused boolean not null default false,
    primary key (execution_id, timer_key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create index timer_due on noetl.timer (due_at) where not is_paused;

-- Values of secret inputs, sealed to the worker on claim and dropped with the execution.
create table noetl.execution_secret (
    execution_id bigint not null,
    name text not null,
    data_encrypted text not null,
    primary key (execution_id, name)
);

create table noetl.transient (
    execution_id bigint not null,
    var_name text not null,
    var_type text,
    var_value jsonb,
    source_step text,
    created_at timestamptz not null default now(),
    accessed_at timestamptz,
    access_count int not null default 0,
    expires_at timestamptz,
    primary key (execution_id, var_name)
);

create table noetl.subscription_dedup (
    scope text not null,
    dedup_key text not null,
    execution_id bigint not null,
    body_digest bytea not null default '',
    expires_at timestamptz not null,
    primary key (scope, dedup_key)
);
create index subscription_dedup_expiry on noetl.subscription_dedup (expires_at);

create table noetl.result (
    result_id bigint primary key,
    tenant_id text not null default 'default',
    execution_id bigint,
    name text,
    scope text,
    source_step text,
    ref text not null unique,
    body bytea,
    object_key text,
    content_type text,
    bytes bigint,
    sha256 bytea,
    preview jsonb,
    manifest jsonb,
    created_at timestamptz not null default now(),
    expires_at timestamptz
);
alter table noetl.result alter column body set storage external;
create index result_by_name on noetl.result (execution_id, name);
create index result_expiry on noetl.result (expires_at) where expires_at is not null;

create table noetl.log (
    execution_id bigint not null,
    command_id bigint not null,
    attempt int not null,
    step text,
    task text,
    n int not null,
    ts timestamptz not null,
    stream text not null default 'log',
    level text not null default 'info',
    text text not null,
    primary key (execution_id, command_id, attempt, n)
) partition by range (execution_id);
create table noetl.log_default partition of noetl.log default;

create table noetl.callback (
    key_sha256 text primary key,
    execution_id bigint not null,
    command_id bigint not null,
    expires_at timestamptz
);

create table noetl.callback_held (
    execution_id bigint not null,
    step text not null,
    job_name text not null,
    body jsonb,
    expires_at timestamptz,
    primary key (execution_id, step, job_name)
);

create table noetl.request_result (
    request_id text primary key,
    execution_id bigint,
    result_id bigint,
    sha256 bytea,
    created_at timestamptz not null default now(),
    expires_at timestamptz
);

create table noetl.delivery (
    subscription_id bigint not null,
    delivery_id bigint not null,
    at timestamptz not null default now(),
    outcome text not null,
    reason text,
    status int,
    message_id text,
    execution_id bigint,
    duration_ms double precision,
    bytes bigint,
    directives jsonb,
    body_ref text,
    replay_of bigint,
    primary key (subscription_id, delivery_id)
);
create index delivery_newest on noetl.delivery (subscription_id, at desc);

create table noetl.dead_letter (
    subscription_id bigint not null,
    ref text not null,
    message_id text,
    reason text,
    attempts int not null default 0,
    result_id bigint,
    at timestamptz not null default now(),
    primary key (subscription_id, ref)
);

-- ---------------------------------------------------------------------------- the cluster

create table noetl.catalog (
    catalog_id bigint primary key,
    tenant_id text not null default 'default',
    path text not null,
    version int not null,
    kind text not null,
    content text not null,
    digest bytea not null,
    layout jsonb,
    payload jsonb,
    meta jsonb,
    active boolean not null default true,
    message text,
    created_by text,
    created_at timestamptz not null default now(),
    archived_at timestamptz,
    unique (tenant_id, path, version)
);
create unique index catalog_active on noetl.catalog (tenant_id, path) where active;

create table noetl.credential (
    id bigint primary key,
    tenant_id text not null default 'default',
    name text not null,
    type text not null,
    data_encrypted text not null,
    meta jsonb,
    tags text[],
    description text,
    region text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (tenant_id, name)
);

create table noetl.keychain (
    id bigint primary key,
    cache_key text not null unique,
    keychain_name text,
    catalog_id bigint,
    credential_type text,
    cache_type text,
    scope_type text,
    execution_id bigint,
    data_encrypted text,
    expires_at timestamptz,
    auto_renew boolean not null default false,
    renew_config jsonb,
    created_at timestamptz not null default now(),
    accessed_at timestamptz,
    access_count int not null default 0
);

create table noetl.runtime (
    runtime_id bigint primary key,
    name text not null,
    kind text not null,
    pool text not null default '',
    uri text not null default '',
    hostname text not null default '',
    status text not null default 'ready',
    labels jsonb not null default '{}',
    capabilities jsonb not null default '{}',
    capacity int not null default 0,
    free_slots int not null default 0,
    machine_id int,
    runtime jsonb not null default '{}',
    heartbeat timestamptz not null default now(),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (kind, name)
);

create table noetl.schedule (
    schedule_id bigint primary key,
    tenant_id text not null default 'default',
    name text not null,
    path text not null,
    version int,
    cron text,
    interval_seconds int,
    timezone text not null default 'UTC',
    payload jsonb not null default '{}',
    policy jsonb not null default '{}',
    enabled boolean not null default true,
    next_run_at timestamptz,
    last_run_at timestamptz,
    last_execution_id bigint,
    last_status text not null default '',
    origin text not null default 'trigger',
    created_by text not null default '',
    updated_at timestamptz not null default now(),
    unique (tenant_id, name)
);
create index schedule_due on noetl.schedule (next_run_at) where enabled;

-- The limit of a key over all shards; a row is released by the terminal event of its run.
create table noetl.concurrency_slot (
    tenant_id text not null default 'default',
    key text not null,
    execution_id bigint not null,
    state text not null check (state in ('running', 'queued')),
    at timestamptz not null default now(),
    primary key (tenant_id, key, execution_id)
);

create table noetl.subscription (
    subscription_id bigint primary key,
    tenant_id text not null default 'default',
    path text not null,
    catalog_id bigint,
    version int,
    state text not null,
    listener text unique,
    last_event_type text,
    next_tick_at timestamptz,
    outcome jsonb,
    updated_at timestamptz not null default now(),
    unique (tenant_id, path)
);

create table noetl.dispatch_rule (
    tenant_id text not null default 'default',
    version int not null,
    rules jsonb not null,
    active boolean not null default false,
    primary key (tenant_id, version)
);

create table noetl.account (
    account_id bigint primary key,
    tenant_id text not null default 'default',
    kind text not null check (kind in ('user', 'service')),
    subject text not null,
    email text,
    display_name text,
    password_hash text,
    active boolean not null default true,
    roles text[] not null default '{}',
    unique (tenant_id, subject)
);

create table noetl.role (
    tenant_id text not null default 'default',
    name text not null,
    permissions text[] not null default '{}',
    grants jsonb,
    primary key (tenant_id, name)
);

create table noetl.token (
    token_id bigint primary key,
    account_id bigint not null references noetl.account (account_id) on delete cascade,
    sha256 bytea not null unique,
    name text not null default '',
    scopes text[] not null default '{}',
    pool text,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz
);

create table noetl.session (
    sha256 bytea primary key,
    account_id bigint not null references noetl.account (account_id) on delete cascade,
    expires_at timestamptz,
    idle_until timestamptz,
    client jsonb,
    revoked_at timestamptz
);

create table noetl.plugin (
    tenant_id text not null default 'default',
    path text not null,
    version int not null,
    digest text not null,
    media_type text,
    bytes bytea,
    capabilities jsonb,
    signature text,
    primary key (tenant_id, path, version)
);

create table noetl.circuit (
    tenant_id text not null default 'default',
    path text not null,
    state jsonb not null,
    revision bigint not null default 0,
    primary key (tenant_id, path)
);

create table noetl.audit (
    audit_id bigint primary key,
    tenant_id text not null default 'default',
    at timestamptz not null default now(),
    actor text,
    action text not null,
    resource text,
    outcome text,
    source_ip text,
    details jsonb,
    prev_hash bytea,
    hash bytea
);

create table noetl.shard_epoch (
    since_execution_id bigint primary key,
    shard_count int not null
);

-- ---------------------------------------------------------------------------- partitions

-- The first snowflake of a moment: milliseconds since 2024, 22 bits to the left.
create function noetl.first_id(moment timestamptz) returns bigint
language sql immutable strict parallel safe as $$
    select ((extract(epoch from moment) - 1704067200) * 1000)::bigint << 22
$$;

-- One partition of `event` and of `log` per calendar month, from this one to some months ahead.
-- Rows that the default partition has caught meanwhile move to where they belong.
create function noetl.ensure_partitions(since timestamptz, months int) returns int
language plpgsql as $$
declare
    month timestamp := date_trunc('month', since at time zone 'UTC');
    parent text;
    part text;
    low bigint;
    high bigint;
    made int := 0;
begin
    perform pg_advisory_xact_lock(hashtextextended('noetl:partitions', 0));
    for ahead in 0..months loop
        low := noetl.first_id((month + make_interval(months => ahead)) at time zone 'UTC');
        high := noetl.first_id((month + make_interval(months => ahead + 1)) at time zone 'UTC');
        foreach parent in array array['event', 'log'] loop
            part := parent || to_char(month + make_interval(months => ahead), '_YYYY_MM');
            continue when to_regclass(format('noetl.%I', part)) is not null;
            execute format('create table noetl.%I (like noetl.%I including all)', part, parent);
            execute format(
                'with moved as (delete from noetl.%I where execution_id >= $1 and '
                'execution_id < $2 returning *) insert into noetl.%I select * from moved',
                parent || '_default', part) using low, high;
            execute format(
                'alter table noetl.%I attach partition noetl.%I for values from (%s) to (%s)',
                parent, part, low, high);
            made := made + 1;
        end loop;
    end loop;
    return made;
end
$$;
