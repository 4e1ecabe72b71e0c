-- Who there is: tenants, when accounts, tokens and sessions were made, the identities of others
-- that an account has, and attempts with passwords.

create table noetl.tenant (
    tenant_id text primary key,
    name text not null default '',
    created_at timestamptz not null default now(),
    limits jsonb not null default '{}'
);
insert into noetl.tenant (tenant_id, name) values ('default', 'default');

alter table noetl.account add column created_at timestamptz not null default now();
create index account_listed on noetl.account (tenant_id, account_id);
create index account_by_email on noetl.account (tenant_id, lower(email)) where email is not null;

create table noetl.identity (
    tenant_id text not null,
    issuer text not null,
    subject text not null,
    account_id bigint not null references noetl.account (account_id) on delete cascade,
    primary key (tenant_id, issuer, subject)
);
create index identity_of_account on noetl.identity (account_id);

alter table noetl.token add column created_at timestamptz not null default now();
create index token_of_account on noetl.token (account_id, token_id);

alter table noetl.session
    add column session_id bigint not null,
    add column created_at timestamptz not null default now(),
    alter column expires_at set not null,
    alter column idle_until set not null;
create unique index session_by_id on noetl.session (session_id);
create index session_of_account on noetl.session (account_id, session_id);

create table noetl.sign_in (
    name text primary key,
    attempts timestamptz[] not null,
    locked_until timestamptz,
    updated_at timestamptz not null
);
comment on column noetl.sign_in.updated_at is 'The later of the last attempt and of the lock.';
create index sign_in_by_age on noetl.sign_in (updated_at);

-- A bearer is read with its account, as that is now.

create view noetl.token_held as
select token.*, account.tenant_id, account.subject, account.kind, account.roles, account.active
from noetl.token join noetl.account using (account_id);

create view noetl.session_held as
select session.*, account.tenant_id, account.subject, account.kind, account.roles, account.active,
    account.email, account.display_name
from noetl.session join noetl.account using (account_id);
