/* SPDX-License-Identifier: GPL-2.0-only */
/* System variables, with InnoDB's names behind "inkstone_". */
#ifndef INKSTONE_VARIABLES_H
#define INKSTONE_VARIABLES_H

#include "server/engine.h"

extern struct st_mysql_sys_var *inkstone_variables[];

/** Opens the database that the variables describe. */
int open_database(ink_database **database, ink_error *error);
/** Makes the database of temporary tables. */
int open_temporary_database(ink_database **temporary, ink_error *error);
/** inkstone_flush_log_at_trx_commit, as one of enum ink_durability. */
uint32_t flush_log_at_commit();
/** inkstone_fast_shutdown, as one of enum ink_shutdown. */
uint32_t shutdown_mode();
/** Whether the server is shutting down and leaves rollbacks to its next start. */
bool leaves_rollbacks();
/** How long a statement waits for a row lock; NOWAIT and WAIT n count. */
uint64_t lock_wait_timeout_ms(THD *thd);
/** Bytes of keys that may be noted while an index is built. */
uint64_t online_alter_log_max_size();
/** How pages are compressed of a table that says no more than that they are. */
const char *compression_of_pages();
bool snapshot_isolation(THD *thd);
/** Whether each deadlock goes to the error log. */
bool prints_all_deadlocks();

#endif
