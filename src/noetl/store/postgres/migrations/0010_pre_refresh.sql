-- A session whose token was renewed: since when, and the token before, which lasts a moment longer.

alter table noetl.session
    add column refreshed_at timestamptz,
    add column previous_sha256 bytea;
comment on column noetl.session.refreshed_at is 'Since when the token of the session is its token.';
create unique index session_by_previous on noetl.session (previous_sha256)
    where previous_sha256 is not null;

drop view noetl.session_held;
create view noetl.session_held as
select session.*, account.tenant_id, account.subject, account.kind, account.roles, account.active,
    account.email, account.display_name
from noetl.session join noetl.account using (account_id);
