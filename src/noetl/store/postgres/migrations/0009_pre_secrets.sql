-- Credentials and the keychain: what users own is `json`, as everywhere; values of the keychain are
-- listed by their document, and found when they are about to end. One server makes a value anew; a
-- turn is worth nothing after a crash, so it is in no log.

alter table noetl.credential alter column meta type json using meta::json;
alter table noetl.keychain alter column renew_config type json using renew_config::json;
create index credential_by_name on noetl.credential (tenant_id, name collate "C");
create index keychain_of_document on noetl.keychain (catalog_id, cache_key collate "C");
create index keychain_expiry on noetl.keychain (expires_at) where expires_at is not null;
create unlogged table noetl.keychain_turn (
    cache_key text primary key,
    holder text not null,
    until timestamptz not null
);
