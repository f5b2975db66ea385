"""Functions that write, or act on more than their own statement: a permitted query calls none of them.

They are known by name, in the system's schema or in an extension. A read-only transaction stops few of them.
What a user has written under the same name is the user's own business.
"""

from fnmatch import fnmatchcase

ACTING = (
    # Sequences.
    "nextval",
    "setval",
    # A number of a transaction, which writing alone takes.
    "txid_current",
    "pg_current_xact_id",
    # Large objects, which are written outside of any privilege on tables.
    "lo_*",
    "loread",
    "lowrite",
    # Locks that outlive the transaction, and messages to others.
    "pg_advisory_*",
    "pg_try_advisory_*",
    "pg_notify",
    "pg_logical_emit_message",
    # The session: its settings, and with them who it is.
    "set_config",
    "setseed",
    "pg_export_snapshot",
    # Other sessions, and the server.
    "pg_cancel_backend",
    "pg_terminate_backend",
    "pg_reload_conf",
    "pg_rotate_logfile*",
    "pg_log_*",
    "pg_promote",
    "pg_switch_wal",
    "pg_create_restore_point",
    "pg_backup_*",
    "pg_start_backup",
    "pg_stop_backup",
    "pg_wal_replay_pause",
    "pg_wal_replay_resume",
    "pg_stat_reset*",
    "pg_stat_statements_reset",
    "pg_stat_force_next_flush",
    "pg_clear_*_stats",
    "pg_restore_*_stats",
    "pg_import_system_collations",
    "pg_extension_config_dump",
    "pg_nextoid",
    "pg_stop_making_pinned_objects",
    "binary_upgrade_*",
    "brin_summarize_*",
    "brin_desummarize_*",
    "gin_clean_pending_list",
    "pg_prewarm",
    "autoprewarm_*",
    "pg_buffercache_evict*",
    "pg_truncate_visibility_map",
    "heap_force_*",
    # Replication.
    "pg_create_*_slot",
    "pg_copy_*_slot",
    "pg_drop_replication_slot",
    "pg_replication_slot_advance",
    "pg_sync_replication_slots",
    "pg_logical_slot_*",
    "pg_replication_origin_*",
    # Files of the server.
    "pg_read_file*",
    "pg_read_binary_file*",
    "pg_stat_file",
    "pg_ls_*",
    "pg_file_*",
    "pg_logdir_ls",
    # Other servers.
    "dblink*",
    "postgres_fdw_disconnect*",
    # SQL in a text, of which nobody knows what it reads.
    "query_to_xml*",
    "table_to_xml*",
    "schema_to_xml*",
    "database_to_xml*",
    "cursor_to_xml*",
    "xpath_table",
    "ts_stat",
    "ts_rewrite",
    "crosstab*",
    "connectby",
)


def is_acting(name: str) -> bool:
    """Return whether *name* is that of such a function."""
    return any(fnmatchcase(name, pattern) for pattern in ACTING)


#: System functions that describe objects by name or number, or say how much is in them: what a view shows
#: by them is not among the columns that it reads.
DESCRIBING = (
    "pg_stat_get_*",
    "pg_database_size",
    "pg_indexes_size",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
    "pg_prepared_statement",
    "pg_cursor",
    "pg_typeof",
    "pg_lock_status",
    "pg_has_role",
    "pg_current_logfile",
    "pg_hba_file_rules",
    "pg_ident_file_mappings",
    "pg_filenode_relation",
    "pg_listening_channels",
    "format_type",
    "acldefault",
    "json*_populate_record*",
    "pg_relation_*",
    "pg_table_*",
    "*_description",
    "pg_get_*",
    "pg_describe_object",
    "pg_identify_object*",
    "pg_sequence_*",
    "pg_partition_*",
    "pg_*_is_visible",
    "pg_index*_has_property",
    "to_reg*",
    "reg*out",
    "reg*in",
    "has_*_privilege",
    "currval",
    "lastval",
    "row_security_active",
    "pg_show_all_settings",
    "pg_show_all_file_settings",
    "aclexplode",
)


def is_describing(name: str) -> bool:
    """Return whether *name* is that of such a function."""
    return any(fnmatchcase(name, pattern) for pattern in DESCRIBING)
