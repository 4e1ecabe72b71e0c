-- Which version a path means, versions that were removed, and what lists of documents are read by.

alter table noetl.catalog
    add column activation int,
    add column removed_at timestamptz;
comment on column noetl.catalog.activation is
    'The order in which versions became what their path means; null: this one never was.';
comment on column noetl.catalog.removed_at is
    'Nobody sees it any more; a run that began at that moment still finds it by its id.';
update noetl.catalog set activation = version;
update noetl.catalog set active = false where archived_at is not null;
update noetl.catalog set kind = 'playbook_test' where kind = 'playbooktest';
update noetl.catalog set kind = 'wasm_playbook' where kind = 'wasmplaybook';

-- Pages of documents, in the order of their paths whatever the language of the database.
create index catalog_by_path on noetl.catalog (tenant_id, path collate "C", version desc)
    where removed_at is null;
create index catalog_latest on noetl.catalog (tenant_id, path collate "C") where active;
-- The tests of a playbook that must pass before one of its versions becomes what its path means.
create index catalog_tests on noetl.catalog (tenant_id, (meta ->> 'tests'))
    where active and kind = 'playbook_test';

-- The runs of one version: to count them, to list them, and to know that there are none.
create index execution_by_document on noetl.execution (catalog_id, execution_id desc);
