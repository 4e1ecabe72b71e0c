-- The audit is a chain: each row has its place, the hash of the row before and its own. Rows are
-- added and never changed; where the chain ends is kept apart, so that a lost end is noticed too.

alter table noetl.audit add column seq bigint;
-- The text as it was hashed: jsonb would spell numbers in its own way.
alter table noetl.audit alter column details type json using details::json;
update noetl.audit set seq = placed.seq
from (select audit_id, row_number() over (order by at, audit_id) as seq from noetl.audit) as placed
where audit.audit_id = placed.audit_id;
alter table noetl.audit alter column seq set not null;
create unique index audit_chain on noetl.audit (seq);
create index audit_newest on noetl.audit (tenant_id, seq desc);
create index audit_of_actor on noetl.audit (tenant_id, actor, seq desc);
create index audit_of_action on noetl.audit (tenant_id, action text_pattern_ops, seq desc);
create index audit_of_resource on noetl.audit (tenant_id, resource text_pattern_ops, seq desc);

create table noetl.audit_head (
    is_only boolean primary key default true check (is_only),
    seq bigint not null,
    hash bytea not null
);
insert into noetl.audit_head (seq, hash)
select coalesce(max(seq), 0), decode(repeat('00', 32), 'hex') from noetl.audit;

create function noetl.audit_is_kept() returns trigger
language plpgsql as $$
begin
    raise exception 'rows of the audit are never changed' using errcode = 'insufficient_privilege';
end
$$;
create trigger audit_append_only before update or delete on noetl.audit
    for each row execute function noetl.audit_is_kept();
create trigger audit_not_emptied before truncate on noetl.audit
    for each statement execute function noetl.audit_is_kept();
