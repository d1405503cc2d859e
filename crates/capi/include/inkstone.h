/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Inkstone from C: a crash-safe transactional storage engine.
 *
 * A database is a directory. It holds tables; a table is a clustered tree and any number of
 * secondary trees in one file. Keys and values are byte strings, and keys sort as memcmp does.
 * Everything is read and changed through a transaction.
 *
 *     ink_error error;
 *     ink_database *db;
 *     ink_table *table;
 *     ink_transaction *txn;
 *     ink_buffer value = {0};
 *     bool found;
 *
 *     if (ink_open("accounts.ink", NULL, 0, &db, &error))        // creates it in an empty directory
 *         errx(1, "%s", error.message);
 *     ink_create_table(db, INK_STR("accounts"), NULL, 0, &error);
 *     ink_table_open(db, INK_STR("accounts"), &table, &error);
 *     const ink_tree *rows = ink_table_tree(table, 0);
 *
 *     ink_begin(db, INK_REPEATABLE_READ, NULL, &txn, &error);
 *     ink_insert(txn, rows, INK_STR("1001"), INK_STR("Ada: 50"), &error);
 *     ink_commit(txn, INK_SYNC, &error);                         // on disk when this returns
 *     ink_transaction_free(txn);
 *
 *     ink_begin(db, INK_REPEATABLE_READ, NULL, &txn, &error);
 *     ink_get(txn, rows, INK_STR("1001"), &value, &found, &error);
 *     ink_transaction_free(txn);                                 // rolls back what is not committed
 *     ink_buffer_free(&value);
 *     ink_table_close(table);
 *     ink_close(db, &error);
 *
 * Errors. A function that can fail returns an int: 0 (INK_OK) or one of enum ink_code, and says
 * more in the ink_error that the caller gives it (NULL: not wanted). Results are written to the
 * last parameters before it, and are unspecified after a failure, but where a function says
 * otherwise.
 *
 * Memory. Handles (pointers to the incomplete types below) are made by the library, and given back
 * by the function named at each; giving back NULL does nothing. What a caller passes in is read
 * before the call returns, never kept. What is lent out (ink_slice, ink_row results) says how long
 * it lives.
 *
 * Threads. A database, a table and its trees may be used by any number of threads at once. A
 * transaction and its cursors are used by one thread at a time; it need not always be the same one.
 * An interrupt may be raised from any thread. No state is kept by thread.
 *
 * Panics. A bug in the library that panics is returned as INK_PANIC: give the handles of that call
 * back, and reopen the database. Broken invariants abort the process rather than write wrong bytes.
 * Callbacks return normally: no exceptions, no longjmp.
 */
#ifndef INKSTONE_H
#define INKSTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Bytes and errors -------------------------------------------------------------------------- */

/* Borrowed bytes. `data` may be NULL when `len` is 0, else INK_INVALID. */
typedef struct ink_slice {
  const uint8_t *data;
  size_t len;
} ink_slice;

/* A slice over a string literal. */
#ifdef __cplusplus
#define INK_STR(literal) (ink_slice{(const uint8_t *)(literal), sizeof(literal) - 1})
#else
#define INK_STR(literal) ((ink_slice){(const uint8_t *)(literal), sizeof(literal) - 1})
#endif

/* A row: key and value. */
typedef struct ink_row {
  ink_slice key;
  ink_slice value;
} ink_row;

/* Bytes that the library allocates and the caller owns. Begin with zeroes; use it as often as you
 * like (the memory is used again); give it back with ink_buffer_free. Only read the fields. */
typedef struct ink_buffer {
  uint8_t *data;
  size_t len;
  size_t capacity;
} ink_buffer;

/* Gives the memory back, and zeroes the fields. */
void ink_buffer_free(ink_buffer *buffer);

/* What went wrong. */
enum ink_code {
  INK_OK = 0,
  /* The operating system refused an operation. */
  INK_IO = 1,
  /* Bytes on disk are damaged; the message names file, page and offset. */
  INK_CORRUPT = 2,
  /* A log write or a sync failed: close the database and open it again. */
  INK_POISONED = 3,
  /* No space; the statement had no effect. */
  INK_DISK_FULL = 4,
  INK_KEY_TOO_LONG = 5,
  INK_VALUE_TOO_LONG = 6,
  INK_DUPLICATE_KEY = 7,
  INK_ROW_NOT_FOUND = 8,
  /* Snapshot isolation: the row was changed after the snapshot. Roll back and repeat. */
  INK_WRITE_CONFLICT = 9,
  /* The transaction was chosen as a deadlock's victim, and IS rolled back. */
  INK_DEADLOCK = 10,
  /* The statement had no effect; the transaction goes on. */
  INK_LOCK_TIMEOUT = 11,
  /* INK_NO_WAIT was asked for, and the row is locked. The statement had no effect. */
  INK_LOCK_NOT_AVAILABLE = 12,
  /* The transaction has ended, is prepared, or is being rolled back. */
  INK_TRANSACTION_STATE = 13,
  /* No such table, tree, savepoint or prepared transaction. */
  INK_NOT_FOUND = 14,
  INK_ALREADY_EXISTS = 15,
  /* An option or argument cannot be taken. */
  INK_INVALID = 16,
  INK_NEWER_FORMAT = 17,
  /* Another process or handle has the database open. */
  INK_IN_USE = 18,
  INK_NOT_A_DATABASE = 19,
  INK_UNSUPPORTED = 20,
  /* The transaction's interrupt was raised; the statement had no effect. */
  INK_INTERRUPTED = 21,
  /* A bug in the library. */
  INK_PANIC = 22,
  /* The process was forked after the database was opened: it is the parent's. */
  INK_FORKED = 23,
  /* The table is newer than the transaction's snapshot, which would see too few rows. */
  INK_TABLE_CHANGED = 24,
  /* The database is being closed, or was. */
  INK_CLOSED = 25,
  /* Too many transactions are active; nothing was begun. */
  INK_TOO_MANY_TRANSACTIONS = 26,
  /* The database was opened for reading only; nothing was changed. */
  INK_READ_ONLY = 27,
  /* A table, tree or cursor of another open database was given to this one; nothing was done. */
  INK_OTHER_DATABASE = 28
};

/* The reason of a failure, for people. Filled when a function fails, otherwise not touched. */
typedef struct ink_error {
  int32_t code;
  /* Cut off if longer; always ends with a zero byte; UTF-8. */
  char message[508];
} ink_error;

/* Version of the library, as in "0.1.0". Lives for ever. */
const char *ink_version(void);

/* ---- Database ---------------------------------------------------------------------------------- */

/* An open database. From ink_open; given back by ink_close. */
typedef struct ink_database ink_database;

/* An option: name and value as in a configuration file, "buffer_pool_size" and "1g". */
typedef struct ink_option {
  ink_slice name;
  ink_slice value;
} ink_option;

enum ink_option_kind {
  /* "on" or "off". */
  INK_OPTION_BOOL = 0,
  /* A number; k, m, g, t are understood behind it. */
  INK_OPTION_NUMBER = 1,
  /* One of the words in `choices`. */
  INK_OPTION_CHOICE = 2
};

/* An option that there is. The slices live as long as the call of the visitor. */
typedef struct ink_option_info {
  ink_slice name;
  uint32_t kind;
  /* Of a choice: the words, with '|' between them. */
  ink_slice choices;
  /* The value by default, as text; of a number in plain digits. */
  ink_slice default_value;
  ink_slice help;
} ink_option_info;

/* Visitors are called once for each item; false ends the visit early. NULL visits nothing. */
typedef bool (*ink_visit_option)(void *context, const ink_option_info *option);
/* Lists every option. Needs no database. */
void ink_options(ink_visit_option visit, void *context);

/* Opens the database in a directory (a path in the file system's bytes, ended by a zero byte), or
 * creates it there if the directory is empty or missing. Recovery runs first if it was not closed
 * in order. */
int ink_open(const char *directory, const ink_option *options, size_t option_count,
             ink_database **database, ink_error *error);

/* As ink_open. `visit` hears how far recovery is ("1073741824 bytes of log read, 812 of 4096 pages
 * changed, 12 s"), at most ten times a second, called by this thread; when it says false no
 * more. NULL: nothing is told. */
typedef bool (*ink_visit_progress)(void *context, ink_slice text);
int ink_open_watched(const char *directory, const ink_option *options, size_t option_count,
                     ink_visit_progress visit, void *context, ink_database **database,
                     ink_error *error);

/* A new database for scratch data, as temporary tables are. Nothing is synced and no log written,
 * whatever a commit asks for; pages that do not fit into the buffer pool go to a file without a
 * name in the folder (as a directory above; it must be there), which the system removes when the
 * process ends, however that happens. It is gone when it is closed. Of the options only those count
 * that are about memory, locks, the size of pages and how they are kept. It cannot be exported
 * from. */
int ink_open_scratch(const char *folder, const ink_option *options, size_t option_count,
                     ink_database **database, ink_error *error);

/* What closing does. What was committed is durable afterwards with each. */
enum ink_shutdown {
  INK_SLOW = 0,     /* purges and rolls back what is left, then as INK_FAST */
  INK_FAST = 1,     /* writes all pages: the next open needs no recovery */
  INK_LOG_ONLY = 2  /* writes only the log: the next open recovers */
};

/* Closes as the option "fast_shutdown" says (INK_FAST, if it is not set) and gives the handle back,
 * also on failure. Give tables, cursors and transactions back first: those that are left can only
 * be given back. Prepared transactions stay prepared. */
int ink_close(ink_database *database, ink_error *error);

/* As ink_close; how: one of enum ink_shutdown. */
int ink_close_as(ink_database *database, uint32_t how, ink_error *error);

/* What the latest open found and did, in words ("created in 40 ms", "recovered in 90 ms: ..."). */
int ink_open_report(const ink_database *database, ink_buffer *text, ink_error *error);

/* Has `told` hear, in words, when redo that the open has left to the background is complete, and
 * when its rollbacks are; at once of what was complete before. Called by a thread of the database,
 * which it must not hold up, until ink_close returns. */
typedef void (*ink_recovery_done)(ink_slice text);
void ink_tell_when_recovered(const ink_database *database, ink_recovery_done told);

/* Whether the latest open found a database that had not been closed in order. */
bool ink_recovered(const ink_database *database);

/* Whether every write is refused with INK_READ_ONLY: options "read_only" and "force_recovery". */
bool ink_is_read_only(const ink_database *database);

/* The longest key that its trees take: 3072 bytes; 1536 in pages of 8 KiB, 768 in 4 KiB. */
size_t ink_key_bytes_max(const ink_database *database);

/* Visits name and value of every option in force. */
typedef bool (*ink_visit_text)(void *context, ink_slice name, ink_slice value);
void ink_option_values(const ink_database *database, ink_visit_text visit, void *context);

/* ---- Watching ---------------------------------------------------------------------------------- */

/* A counter (only grows) or gauge. The slices live for ever. */
typedef struct ink_metric {
  ink_slice name;
  ink_slice help;
  uint64_t value;
  bool is_gauge;
} ink_metric;

typedef bool (*ink_visit_metric)(void *context, const ink_metric *metric);
/* Visits all counters, then all gauges, always in the same order; in a forked child counters
   only. */
void ink_metrics(const ink_database *database, ink_visit_metric visit, void *context);

/* How long one kind of operation took since the database was opened: writes and syncs of log and
 * pages, reads of pages, waits for locks, frames and log. Nanoseconds. Of each hundred operations
 * 99 took at most p99_ns, and so on: percentiles are at most an eighth too long, all else is exact.
 * The slices live for ever. */
typedef struct ink_duration {
  ink_slice name;
  ink_slice help;
  uint64_t count;
  uint64_t sum_ns;
  uint64_t p50_ns;
  uint64_t p90_ns;
  uint64_t p99_ns;
  uint64_t p999_ns;
  uint64_t max_ns;
} ink_duration;

typedef bool (*ink_visit_duration)(void *context, const ink_duration *duration);
/* Visits all kinds, always in the same order. */
void ink_durations(const ink_database *database, ink_visit_duration visit, void *context);

/* How many operations of a kind took at most so long, and longer than half of that: a power of two
 * less one, UINT64_MAX in the last. */
typedef struct ink_duration_bucket {
  ink_slice name;
  uint64_t longest_ns;
  uint64_t count;
} ink_duration_bucket;

typedef bool (*ink_visit_bucket)(void *context, const ink_duration_bucket *bucket);
/* Visits the buckets that are not empty, kind by kind, from the shortest on. */
void ink_duration_buckets(const ink_database *database, ink_visit_bucket visit, void *context);

enum ink_transaction_state { INK_STATE_ACTIVE = 0, INK_STATE_PREPARED = 1 };

/* A transaction that has not ended. */
typedef struct ink_transaction_info {
  uint64_t id;
  /* What ink_transaction_set_tag said; 0 of a recovered one. */
  uint64_t tag;
  /* enum ink_transaction_state. */
  uint32_t state;
  /* enum ink_isolation. */
  uint32_t isolation;
  uint64_t age_ms;
  /* Row changes made, of secondary trees too. */
  uint64_t changes;
  /* Rows of tables that it has changed, and not undone. A row that is changed twice counts
     twice. */
  uint64_t rows;
  /* Explicit row locks held; changed rows are locked without one. */
  uint64_t row_locks;
  /* Ranges and gaps that it has locked. */
  uint64_t range_locks;
  /* The transaction whose end it waits for; 0: it does not wait. */
  uint64_t waits_for;
  uint64_t waited_ms;
  /* The statement that it is in, if the hook says so (ink_set_lock_wait_hooks); else empty. Valid
   * during the call of the visitor. */
  ink_slice statement;
} ink_transaction_info;

typedef bool (*ink_visit_transaction)(void *context, const ink_transaction_info *info);
int ink_transactions(const ink_database *database, ink_visit_transaction visit, void *context,
                     ink_error *error);

/* A range is all keys between its ends, a gap the same against inserts only. */
enum ink_lock_kind { INK_LOCK_KIND_ROW = 0, INK_LOCK_KIND_RANGE = 1, INK_LOCK_KIND_GAP = 2 };

enum ink_lock_state {
  INK_LOCK_HELD = 0,
  /* The row was changed, and others wait for it. Of changed rows only those are listed. */
  INK_LOCK_CHANGED = 1,
  INK_LOCK_WAITING = 2
};

/* A lock that is held or waited for. */
typedef struct ink_lock_info {
  uint64_t transaction;
  /* What ink_transaction_set_tag said. */
  uint64_t tag;
  /* enum ink_lock_state. */
  uint32_t state;
  uint32_t kind;
  /* enum ink_lock. */
  uint32_t mode;
  /* Table and tree; empty if dropped meanwhile. Valid during the call of the visitor. */
  ink_slice table;
  ink_slice tree;
  /* Its ends, of a row both its key, and enum ink_bound for each. Valid during the call. */
  ink_slice low;
  ink_slice high;
  uint32_t low_bound;
  uint32_t high_bound;
  /* Of a waiter, else 0: the transaction that it waits for, how long by now, the place in the row's
   * queue (from 1; 0 for a range, which has none), whether to put a row there, and in which
   * statement (as above). */
  uint64_t waits_for;
  uint64_t waited_ms;
  uint64_t place;
  bool inserts;
  ink_slice statement;
} ink_lock_info;

typedef bool (*ink_visit_lock)(void *context, const ink_lock_info *lock);
/* Visits all explicit locks, and the queues behind them: a waiter is visited once for each
 * transaction that it waits for. Of several before it in a queue that is the last that waits for
 * the others, too. No list is made: a visitor that has seen enough ends it early. */
int ink_locks(const ink_database *database, ink_visit_lock visit, void *context, ink_error *error);
/* Visits the waiters, the longest first. */
int ink_waits(const ink_database *database, ink_visit_lock visit, void *context, ink_error *error);

/* A readable account of the engine, for SHOW ENGINE STATUS: log, checkpoint, buffer pool, rows,
 * durations, versions, locks, which transaction waits for which, transactions, latest deadlock. */
int ink_status_text(const ink_database *database, ink_buffer *text, ink_error *error);

/* The latest deadlock in words; empty if there was none. */
int ink_latest_deadlock(const ink_database *database, ink_buffer *text, ink_error *error);

/* ---- Log and checkpoints ----------------------------------------------------------------------- */

/* What a commit waits for (flush_log_at_trx_commit). */
enum ink_durability {
  /* Nothing: written and synced within about a second. */
  INK_LAZY = 0,
  /* The log is written and synced. */
  INK_SYNC = 1,
  /* The log is written; synced within about a second. */
  INK_WRITE = 2
};

/* Makes everything that is committed durable: INK_SYNC writes and syncs the log, INK_WRITE only
 * writes it. INK_LAZY does nothing. */
int ink_flush_log(const ink_database *database, uint32_t durability, ink_error *error);

/* Writes all changed pages and a checkpoint. */
int ink_checkpoint(const ink_database *database, ink_error *error);

/* ---- Interrupts -------------------------------------------------------------------------------- */

/* Interrupts the calls of the transactions that were begun with it: one for each connection. From
 * ink_interrupt_new; given back by ink_interrupt_free, in any order with its transactions. */
typedef struct ink_interrupt ink_interrupt;

ink_interrupt *ink_interrupt_new(void);
void ink_interrupt_free(ink_interrupt *interrupt);
/* From any thread: the lock wait or scan that is going on, and each later one, fails with
 * INK_INTERRUPTED until it is cleared. Commits and rollbacks are not interrupted. */
void ink_interrupt_raise(const ink_interrupt *interrupt);
void ink_interrupt_clear(const ink_interrupt *interrupt);

/* ---- Tables ------------------------------------------------------------------------------------ */

/* An open table. From ink_table_open; given back by ink_table_close. */
typedef struct ink_table ink_table;
/* A tree of an open table; lives as long as that handle. */
typedef struct ink_tree ink_tree;

/* Names of tables and trees are UTF-8, 1 to 768 bytes, without a zero byte. Each of these calls is
 * durable and atomic when it returns, and waits for no transaction: keep them apart from running
 * statements on the same table. */

/* Creates a table with a clustered tree, named "primary", and `secondary_count` secondary trees. */
int ink_create_table(const ink_database *database, ink_slice name, const ink_slice *secondary,
                     size_t secondary_count, ink_error *error);
/* As ink_create_table, with options of the table: page_placement, page_compression and
 * page_compression_level. What is not named is as the database's options of these names say.
 * INK_INVALID for what does not go together. A table stays what it was made as. */
int ink_create_table_with(const ink_database *database, ink_slice name, const ink_slice *secondary,
                          size_t secondary_count, const ink_option *options, size_t option_count,
                          ink_error *error);
/* Its rows are gone, and its file is removed. It waits for no transaction: one that has changed the
 * table goes on, and what it has changed there is gone whatever becomes of it. */
int ink_drop_table(const ink_database *database, ink_slice name, ink_error *error);
/* Open handles go on working. INK_ALREADY_EXISTS if there is a table of the new name. */
int ink_rename_table(const ink_database *database, ink_slice from, ink_slice to, ink_error *error);
/* As ink_rename_table, and references of other tables to `from` stay with that name: of a table
 * that takes another one's place, or gives its own up for it. */
int ink_rename_table_alone(const ink_database *database, ink_slice from, ink_slice to, ink_error *error);

/* What becomes of rows when the row goes, or changes its key, that they refer to. */
enum ink_reference_action {
  INK_RESTRICT = 0,
  INK_NO_ACTION = 1,
  INK_CASCADE = 2,
  INK_SET_NULL = 3,
};

/* A reference of a table to its parent (a foreign key). The engine keeps it with the table's
 * definition, and checks no row by it. */
typedef struct ink_reference {
  ink_slice name;
  ink_slice parent;
  /* Columns of the table, and those of the parent that they equal: `column_count` (1 or more) of
   * each. */
  const ink_slice *columns;
  const ink_slice *parent_columns;
  size_t column_count;
  /* enum ink_reference_action. */
  uint32_t on_delete;
  uint32_t on_update;
} ink_reference;

/* False: visit no more. Nothing may be called from it. */
typedef bool (*ink_visit_reference)(void *context, ink_slice table, const ink_reference *reference);

/* The references that a table is to have. */
typedef struct ink_table_references {
  ink_slice table;
  const ink_reference *references;
  size_t count;
} ink_table_references;

/* Gives tables these references in the place of those that they have, durably, in one step: all or
 * none. No table may be named twice. */
int ink_set_references(const ink_database *database, const ink_table_references *tables, size_t count,
                       ink_error *error);
/* Visits the references of a table; of all tables if its name is empty. */
int ink_references(const ink_database *database, ink_slice table, ink_visit_reference visit, void *context,
                   ink_error *error);
/* Visits the references to a table, which need not be there. */
int ink_references_to(const ink_database *database, ink_slice parent, ink_visit_reference visit,
                      void *context, ink_error *error);
/* Goes up whenever a table is made, dropped, renamed or defined anew. */
uint64_t ink_references_version(const ink_database *database);

/* Drops `to` and gives its name and references to `from`, in one step: with an empty table this is
 * how to truncate. Open handles of `from` go on working, those of `to` get INK_NOT_FOUND. */
int ink_replace_table(const ink_database *database, ink_slice from, ink_slice to, ink_error *error);
/* The same for `count` pairs, in one step: all or none. No table may be named twice. */
int ink_replace_tables(const ink_database *database, const ink_slice *from, const ink_slice *to, size_t count,
                       ink_error *error);
/* Adds an empty secondary tree. Open handles do not see it: open the table again. */
int ink_create_tree(const ink_database *database, ink_slice table, ink_slice tree, ink_error *error);
/* Says that a table's tree is whole only now: transactions whose snapshot is older get
 * INK_TABLE_CHANGED from it, and not some of its rows. A new tree is so already; say it again when
 * it was filled while others began transactions. */
int ink_complete_tree(const ink_database *database, const ink_tree *tree, ink_error *error);
/* Says that every snapshot may read the tree, also an older one: of a table that a single client
 * uses, which knows when it made it. */
int ink_complete_tree_for_all(const ink_database *database, const ink_tree *tree, ink_error *error);
/* Waits until no prepared transaction has changed rows of these tables: before a table is dropped
 * or renamed, or a tree is filled from the rows, for what is prepared commits without an entry in
 * it.
 * INK_LOCK_TIMEOUT if that takes more than so many milliseconds for all of them; `interrupt` may be
 * NULL. A table that is not there or cannot be opened is passed over. */
int ink_wait_for_prepared(const ink_database *database, const ink_slice *tables, size_t table_count,
                          uint64_t milliseconds, const ink_interrupt *interrupt, ink_error *error);
/* Drops a secondary tree. Its pages are freed in the background, when the transactions have ended
 * that were there. Handles of the tree get INK_NOT_FOUND from then on. */
int ink_drop_tree(const ink_database *database, ink_slice table, ink_slice tree, ink_error *error);
/* Renames a secondary tree. */
int ink_rename_tree(const ink_database *database, ink_slice table, ink_slice from, ink_slice to,
                    ink_error *error);

typedef bool (*ink_visit_name)(void *context, ink_slice name);
/* Visits the names of all tables in byte order. */
int ink_tables(const ink_database *database, ink_visit_name visit, void *context, ink_error *error);

int ink_table_open(const ink_database *database, ink_slice name, ink_table **table, ink_error *error);
void ink_table_close(ink_table *table);
/* How many trees it has. */
size_t ink_table_tree_count(const ink_table *table);
/* The tree at a position, 0 being the clustered one; NULL behind the last. */
const ink_tree *ink_table_tree(const ink_table *table, size_t position);
/* The tree of a name; NULL if there is none. */
const ink_tree *ink_table_find_tree(const ink_table *table, ink_slice name);
/* The tree's name; lives as long as the tree. */
ink_slice ink_tree_name(const ink_tree *tree);
/* The tree's number in its table's file: ink_import_table wants it. */
uint32_t ink_tree_number(const ink_tree *tree);
/* Visits name and value of every option that it was made with: with them ink_create_table_with
 * makes another one of its kind. */
void ink_table_options(const ink_table *table, ink_visit_text visit, void *context);
/* The table's file in the file system. */
int ink_table_path(const ink_table *table, ink_buffer *path, ink_error *error);
/* Whether another table has this name now, which was the open one's: that one was dropped or
 * replaced. */
bool ink_table_is_replaced(const ink_table *table, ink_slice name);

/* ---- Export and import ------------------------------------------------------------------------- */

/* An export that goes on: the table's file is whole and does not change. If its pages are placed,
 * the place map beside it, of the same name with the extension `places`, belongs to it. */
typedef struct ink_export ink_export;

/* Writes everything of the table to its file, durably, and keeps the engine's background work away
 * from it until ink_export_end: the file may be copied. No transaction may have unfinished changes
 * in the table (INK_TRANSACTION_STATE), and the caller keeps writers away meanwhile. */
int ink_export_begin(const ink_table *table, ink_export **handle, ink_error *error);
void ink_export_end(ink_export *handle);

/* A tree in a file to import: its number there, and its name here. */
typedef struct ink_import_tree {
  uint32_t number;
  ink_slice name;
} ink_import_tree;

/* Makes a table of a copied table file, also of another database's. Page size and format must be
 * the same, and every checksum right (INK_CORRUPT). trees[0] is the clustered one; trees of the
 * file that are not named are dropped. If the file's pages are placed, its place map is beside it,
 * with the extension `places`. The files are only read. The table is there when it is whole, also
 * if power fails meanwhile. `options` are those of ink_create_table_with. */
int ink_import_table(const ink_database *database, ink_slice name, const char *file,
                     const ink_import_tree *trees, size_t tree_count, const ink_option *options,
                     size_t option_count, ink_error *error);

/* ---- Upkeep ------------------------------------------------------------------------------------ */

/* Estimates, from a few page visits. */
typedef struct ink_table_estimates {
  uint64_t rows;
  /* Bytes of an average row: leaf pages of the clustered tree by its rows. */
  uint64_t row_bytes;
  uint64_t clustered_pages;
  uint64_t secondary_pages;
  uint64_t page_bytes;
  uint64_t file_bytes;
  /* Of the file, those that no page has. */
  uint64_t free_bytes;
  /* Of pages as they are in memory: in a file they take fewer when they are compressed. */
  uint64_t allocated_bytes;
  /* Of the allocated ones those of long values, with pages about to be freed. */
  uint64_t long_value_bytes;
} ink_table_estimates;

int ink_estimate_table(const ink_table *table, ink_table_estimates *estimates, ink_error *error);

typedef struct ink_tree_estimates {
  uint64_t rows;
  uint64_t leaf_pages;
  uint64_t pages;
  uint32_t height;
} ink_tree_estimates;

int ink_estimate_tree(const ink_tree *tree, ink_tree_estimates *estimates, ink_error *error);

/* How many bytes of a key its beginning is (its first columns, as a rule); 0: the key is cut short
 * before that. Keys between two of the same beginning must have it, too. */
typedef size_t (*ink_visit_beginning)(void *context, ink_slice key);
/* About how many different values the beginnings of a tree's keys have, from about so many leaves
 * and the nodes above them. Rows count in any version, deleted ones too; nothing is locked. */
int ink_estimate_values(const ink_tree *tree, size_t leaves, ink_visit_beginning beginning_of, void *context,
                        uint64_t *values, ink_error *error);

/* Checks every page of a table, and that its space adds up. Nothing should write meanwhile. On
 * success the text says what there is, on INK_CORRUPT the error what is wrong. */
int ink_verify_table(const ink_table *table, ink_buffer *text, ink_error *error);

/* ---- Transactions ------------------------------------------------------------------------------ */

/* A transaction. From ink_begin; given back by ink_transaction_free. */
typedef struct ink_transaction ink_transaction;

enum ink_isolation {
  /* Plain reads see the newest version, committed or not. All else as INK_READ_COMMITTED. */
  INK_READ_UNCOMMITTED = 0,
  /* Each statement sees what was committed when it began (see ink_statement_begin). Locking reads
   * and writes act on the newest committed row, and lock rows but no gaps. */
  INK_READ_COMMITTED = 1,
  /* As InnoDB does it: plain reads see one snapshot; locking reads and writes act on the newest
   * committed row; locking reads of ranges lock the gaps that they pass, so that inserts wait.
   * (In Rust this is LockingRepeatableRead.) */
  INK_REPEATABLE_READ = 2,
  /* Snapshot isolation: as before without gaps, and writing or locking a row that was changed after
   * the snapshot is INK_WRITE_CONFLICT: no update is lost. (In Rust this is RepeatableRead.) */
  INK_SNAPSHOT = 3,
  /* As if transactions ran one after the other: plain reads lock, too, the whole range that a
   * cursor is opened on. To lock only what is read, as InnoDB does, use locking reads
   * (INK_LOCK_SHARED) at INK_REPEATABLE_READ: with all reads so, that is serializable as well. */
  INK_SERIALIZABLE = 4
};

/* Begins. Its snapshot, if the level has one, is taken by its first statement. `interrupt` may be
 * NULL. Cheap: nothing is logged before the first change. */
int ink_begin(const ink_database *database, uint32_t isolation, const ink_interrupt *interrupt,
              ink_transaction **transaction, ink_error *error);

/* Gives the handle back. What has neither been committed nor prepared is rolled back. Its cursors
 * may be closed before or after. */
void ink_transaction_free(ink_transaction *transaction);

/* Its number, as in the lists above. */
uint64_t ink_transaction_id(const ink_transaction *transaction);
/* A number of the caller's that the lists show: the connection's. */
void ink_transaction_set_tag(const ink_transaction *transaction, uint64_t tag);
/* The owner by which the hooks on lock waits (below) know the transaction; NULL, as at first, for
 * none. No hook uses the former owner when this returns. The owner must live until the transaction
 * has ended, or its handle was given back. */
void ink_transaction_set_owner(const ink_transaction *transaction, void *owner);
/* Whether it has changed anything. Without changes a commit needs no log. */
bool ink_transaction_has_changes(const ink_transaction *transaction);
/* For later statements; by default the option lock_wait_timeout_ms. */
int ink_set_lock_wait_timeout(const ink_transaction *transaction, uint64_t milliseconds,
                              ink_error *error);
/* Takes the snapshot now: START TRANSACTION WITH CONSISTENT SNAPSHOT. */
int ink_take_snapshot(const ink_transaction *transaction, ink_error *error);

/* Lock waits, for a program that has an order of its own for transactions, as a replica that
 * commits in the order of its primary has: of two that wait for each other, one for a lock and one
 * for its turn, only the program knows. Transactions are named by their owners.
 *
 * Before each wait: whether the next hook is to be called for those in the way. */
typedef bool (*ink_wants_waits)(void *waiter);
/* `waiter`, in whose thread this runs, is about to wait until `blocker` ends or gives something
 * back: called for each that is in its way, also for those that wait for the same row and came
 * before; again when a wait was in vain and another follows. The end of `blocker` is not complete
 * before this returns. No lock of the library is held: the hook may call it, but must not wait for
 * a transaction's end. */
typedef void (*ink_about_to_wait)(void *waiter, void *blocker);
/* Of two transactions of a deadlock, negative: rather roll back the first; positive: the second; 0:
 * whichever is cheaper. To return at once, without a call to the library. */
typedef int (*ink_compare_victims)(void *first, void *second);
/* The statement that `owner`'s transaction is in, for lists and accounts: writes at most `room`
 * bytes, and returns how many; 0 for none. A lock of the library may be held: to return at once,
 * without a call to the library. */
typedef size_t (*ink_statement_of)(void *owner, char *text, size_t room);
/* A deadlock was found: its account, several lines. Called once for each, in the thread of the
 * victim, before that is rolled back. No lock of the library is held. */
typedef void (*ink_deadlock_found)(ink_slice account);
/* Sets them, from the next wait on. Each may be NULL: without the first, all waits are wanted. */
void ink_set_lock_wait_hooks(const ink_database *database, ink_wants_waits wants_waits,
                             ink_about_to_wait about_to_wait, ink_compare_victims compare_victims,
                             ink_statement_of statement_of, ink_deadlock_found deadlock_found);

/* Begins a statement. At read committed all plain reads up to ink_statement_end see the same
 * snapshot; without it each call is a statement of its own. The statement's beginning is a place to
 * go back to. A second call begins a new statement. */
int ink_statement_begin(const ink_transaction *transaction, ink_error *error);
/* Undoes what was changed since ink_statement_begin, and forgets savepoints set since. Locks
   stay. */
int ink_statement_rollback(const ink_transaction *transaction, ink_error *error);
int ink_statement_end(const ink_transaction *transaction, ink_error *error);

/* A place in a transaction to go back to; costs nothing to set, so a row's changes in several trees
 * can be undone when one of them fails. Do not look inside. */
typedef struct ink_mark {
  uint64_t opaque[4];
} ink_mark;

int ink_mark_set(const ink_transaction *transaction, ink_mark *mark, ink_error *error);
/* Undoes everything since the mark. Explicit locks stay. Later marks are void. */
int ink_mark_rollback(const ink_transaction *transaction, const ink_mark *mark, ink_error *error);

/* Savepoints by name (any bytes that are UTF-8). Setting one again moves it. */
int ink_savepoint_set(const ink_transaction *transaction, ink_slice name, ink_error *error);
/* The savepoint stays; later ones are forgotten. Explicit locks stay. */
int ink_savepoint_rollback(const ink_transaction *transaction, ink_slice name, ink_error *error);
/* Forgets it and those set after it. */
int ink_savepoint_release(const ink_transaction *transaction, ink_slice name, ink_error *error);

/* Commits, and waits as `durability` (enum ink_durability) says. Also a prepared transaction, of
 * which the handle is still there. INK_DEADLOCK: it had been chosen as a victim and is rolled
 * back. */
int ink_commit(ink_transaction *transaction, uint32_t durability, ink_error *error);

/* Commits in two parts. The first fixes the place in the order of commits, makes the changes
 * visible and does not wait for a disk: it may be called under a lock that orders commits. */
int ink_commit_ordered(ink_transaction *transaction, uint32_t durability, ink_error *error);
/* The second waits as `durability` says. INK_TRANSACTION_STATE without the first. */
int ink_commit_wait(ink_transaction *transaction, uint32_t durability, ink_error *error);

/* Rolls back, also a prepared transaction, and one that a deadlock has rolled back already (0). If
 * that fails for want of space it goes on in the background; the transaction is over for its
 * owner. */
int ink_rollback(ink_transaction *transaction, ink_error *error);

/* Prepares under an XID of 1 to 140 bytes: what it changed stays and stays locked, over a restart
 * too, until the XID is committed or rolled back. INK_SYNC: that much is durable when this returns.
 * A transaction that has changed nothing can be prepared as well. If it fails, it is rolled back
 * (INK_ALREADY_EXISTS: another prepared transaction has the XID). */
int ink_prepare(ink_transaction *transaction, ink_slice xid, uint32_t durability, ink_error *error);

/* Of a transaction that was prepared with this handle: rows and ranges that it has locked shared,
 * and its gaps, are free for others. What it has changed or locked exclusively stays locked. */
int ink_release_shared_locks(ink_transaction *transaction, ink_error *error);

/* Visits the XIDs of all prepared transactions, after a restart those that it found. */
int ink_prepared(const ink_database *database, ink_visit_name visit, void *context, ink_error *error);
int ink_commit_by_xid(const ink_database *database, ink_slice xid, ink_error *error);
int ink_rollback_by_xid(const ink_database *database, ink_slice xid, ink_error *error);

/* ---- Rows -------------------------------------------------------------------------------------- */

/* How a read locks rows; the lock is held until the transaction ends. */
enum ink_lock { INK_LOCK_NONE = 0, INK_LOCK_SHARED = 1, INK_LOCK_EXCLUSIVE = 2 };

/* What it does about a row that another transaction has locked. */
enum ink_wait {
  /* Waits, at most the lock wait timeout. */
  INK_WAIT = 0,
  /* INK_LOCK_NOT_AVAILABLE at once. */
  INK_NO_WAIT = 1,
  /* Passes over the row. */
  INK_SKIP_LOCKED = 2
};

/* Keys have at most 3072 bytes (768 in pages of 4 KiB, 1536 in 8 KiB), values at most 2^30. A write
 * waits for the transactions that have changed or locked the row. A call that fails has no
 * effect. */

/* Reads a row into `value` (its former content is gone). `*found` false: there is none. */
int ink_get(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
            ink_buffer *value, bool *found, ink_error *error);

/* Reads the pages of these rows together, those that are not in memory, before they are looked up
 * one by one; `*pages` (may be NULL): how many. A hint: of many keys those at the front count.
 * Where all are in memory it costs a part of the lookups, for nothing. */
int ink_prefetch(const ink_transaction *transaction, const ink_tree *tree, const ink_slice *keys,
                 size_t count, size_t *pages, ink_error *error);

/* Locks a row (at INK_REPEATABLE_READ the gap, at higher levels the place, where it would be) and
 * reads its newest committed version. `*locked` (may be NULL): whether this call took a lock that
 * the transaction did not have, and that ink_unlock_row may give back. */
int ink_get_locking(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                    uint32_t lock, uint32_t wait, ink_buffer *value, bool *found, bool *locked,
                    ink_error *error);

/* Gives back a row lock that the latest read took, because the row is not wanted after all: only at
 * read committed and below, elsewhere nothing happens, and never for a row that the transaction has
 * changed, or has locked twice. The row's waiters go on. */
int ink_unlock_row(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                   ink_error *error);

/* Takes the statement lock of a table: exclusive, and of none of its rows, for example to give out
 * numbers. It is waited for as a row's. It is given back by ink_statement_end,
 * ink_statement_rollback, the next ink_statement_begin, or with the transaction. Does nothing if
 * the transaction has it. */
int ink_lock_for_statement(const ink_transaction *transaction, const ink_table *table, ink_error *error);
/* Whether it is held or waited for. */
bool ink_is_locked_for_statement(const ink_table *table);

/* INK_DUPLICATE_KEY if there is a row of the key, which is locked shared then. */
int ink_insert(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
               ink_slice value, ink_error *error);
/* The same; `duplicate` (enum ink_lock) is how the row is locked: exclusively if it is about to be
   changed. */
int ink_insert_or_lock(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                       ink_slice value, uint32_t duplicate, ink_error *error);
/* Inserts rows one after the other; those in key order are written and logged in runs, which is
 * several times as fast. `*done` rows were inserted, also on failure: row number `*done` is the one
 * that failed (INK_DUPLICATE_KEY). The others stay: see ink_mark_rollback. */
int ink_insert_many(const ink_transaction *transaction, const ink_tree *tree, const ink_row *rows,
                    size_t count, size_t *done, ink_error *error);
/* Rows that are sorted before a tree is filled with them: inserted in key order they cost a
 * fraction of the reads, writes and log. What does not fit into memory lies in a temporary file of
 * the database. From ink_sorter_new; given back by ink_sorter_free. For one thread at a time. */
typedef struct ink_sorter ink_sorter;

int ink_sorter_new(const ink_database *database, ink_sorter **sorter, ink_error *error);
void ink_sorter_free(ink_sorter *sorter);
/* Adds a row. Several may have one key. Not after an insert; after a failure the sorter is of no
 * more use. */
int ink_sorter_add(ink_sorter *sorter, ink_slice key, ink_slice value, ink_error *error);
/* How many rows were added. */
uint64_t ink_sorter_count(const ink_sorter *sorter);
/* What a call of ink_sorter_insert has inserted. */
typedef struct ink_inserted {
  uint64_t rows;
  /* Of their keys and values. */
  uint64_t bytes;
  /* The row that could not be inserted, lent out until the next call with this sorter. */
  ink_row refused;
} ink_inserted;

/* Inserts the next rows by key, at most `max` (1 or more); `inserted->rows` 0 only at the end.
 * Those of one key come in the order in which they were added: the second is INK_DUPLICATE_KEY.
 * Rows before one that fails stay (see ink_mark_rollback), and inserting does not go on behind
 * it. */
int ink_sorter_insert(ink_sorter *sorter, const ink_transaction *transaction, const ink_tree *tree,
                      size_t max, ink_inserted *inserted, ink_error *error);
/* The first row, in the order in which they were added, whose key an earlier one has: how many were
 * added before it, and the row, lent out until the next call. Looks at all rows; inserting begins
 * anew then. */
int ink_sorter_first_repeated(ink_sorter *sorter, uint64_t *number, ink_row *row, bool *found,
                              ink_error *error);

/* Building an index while others write: from the rows that a first snapshot sees, and then, again
 * and again, from those that have changed since. Keys of rows of a tree that are written are noted,
 * up to `bytes_max` of memory (about a hundred bytes a row). Waits at first for transactions that
 * have changed rows of the table before (INK_LOCK_TIMEOUT); INK_NO_WRITERS: there are none, the
 * caller has seen to that. From ink_track_changes; given back by ink_change_tracker_free. For one
 * thread at a time. */
#define INK_NO_WRITERS UINT64_MAX
typedef struct ink_change_tracker ink_change_tracker;
typedef struct ink_changed_rows {
  /* A new transaction that sees the rows as they are now; the caller gives it back. NULL if there
     were too many. */
  ink_transaction *seen;
  /* Keys of all rows of which it sees something else than the one of the call before, and of
     others, in order; lent out until the next call. Of the first call they do not count. */
  const ink_slice *keys;
  size_t count;
  /* The keys took more than `bytes_max`, and no more are noted. */
  bool too_many;
} ink_changed_rows;

int ink_track_changes(const ink_database *database, const ink_tree *tree, uint64_t bytes_max,
                      uint64_t milliseconds, ink_change_tracker **tracker, ink_error *error);
void ink_change_tracker_free(ink_change_tracker *tracker);
int ink_take_changed_rows(ink_change_tracker *tracker, ink_changed_rows *changed, ink_error *error);

/* INK_ROW_NOT_FOUND if there is no row of the key. */
int ink_update(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
               ink_slice value, ink_error *error);
/* Inserts or updates. `*inserted` may be NULL. */
int ink_upsert(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
               ink_slice value, bool *inserted, ink_error *error);
/* `*deleted` (may be NULL) false: there was no row. */
int ink_delete(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
               bool *deleted, ink_error *error);

/* Parts of values. Of a row that is too long for its page the longest parts that the caller names
 * go to pages of their own, as many as must. An update compares such a part with the one that the
 * row has: what is the same is neither written nor logged. Without parts the value goes out as a
 * whole. */

/* `len` bytes of a value from `at` on. */
typedef struct ink_part {
  uint64_t at;
  uint64_t len;
} ink_part;

/* In the order of the value; they do not overlap (INK_INVALID). All zeroes: none. */
typedef struct ink_parts {
  const ink_part *parts;
  size_t count;
} ink_parts;

/* As ink_insert_or_lock, ink_insert_many (`parts`: of each row), ink_update, ink_upsert. */
int ink_insert_with_parts(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                          ink_slice value, ink_parts parts, uint32_t duplicate, ink_error *error);
int ink_insert_many_with_parts(const ink_transaction *transaction, const ink_tree *tree,
                               const ink_row *rows, const ink_parts *parts, size_t count,
                               size_t *done, ink_error *error);
int ink_update_with_parts(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                          ink_slice value, ink_parts parts, ink_error *error);
int ink_upsert_with_parts(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                          ink_slice value, ink_parts parts, bool *inserted, ink_error *error);

/* A row as ink_get reads it, without what lies outside: no page of that is fetched before it is
 * read. From ink_get_outline; given back by ink_outline_free. Until then it keeps a snapshot; it is
 * read as long as the transaction goes on. For one thread at a time. */
typedef struct ink_outline ink_outline;

/* `*outline` NULL: there is no such row. */
int ink_get_outline(const ink_transaction *transaction, const ink_tree *tree, ink_slice key,
                    ink_outline **outline, ink_error *error);
void ink_outline_free(ink_outline *outline);
/* The bytes that lie in the row, one behind the other, and what of the value is missing between
 * them. They live as long as the outline. */
ink_slice ink_outline_inline(const ink_outline *outline);
ink_parts ink_outline_parts(const ink_outline *outline);
/* Copies `len` bytes of part number `part`, from its byte `from` on (INK_INVALID: it has not so
 * many). A long part can be read in pieces: each goes on where the one before has ended. */
int ink_outline_read(ink_outline *outline, size_t part, uint64_t from, uint8_t *to, size_t len,
                     ink_error *error);

/* Rows without a transaction of the caller's. */

/* A row of a tree. */
typedef struct ink_tree_row {
  const ink_tree *tree;
  ink_slice key;
  ink_slice value;
} ink_tree_row;

/* Inserts or updates rows, of several trees perhaps, in a transaction of its own: all or none. */
int ink_write_rows(const ink_database *database, const ink_tree_row *rows, size_t count,
                   uint32_t durability, ink_error *error);
/* Reads what was committed last of a row, without a lock. */
int ink_read_row(const ink_database *database, const ink_tree *tree, ink_slice key,
                 ink_buffer *value, bool *found, ink_error *error);

/* ---- Ranges ------------------------------------------------------------------------------------ */

enum ink_bound { INK_UNBOUNDED = 0, INK_INCLUDED = 1, INK_EXCLUDED = 2 };

/* The keys between two bounds. All zeroes: every key. */
typedef struct ink_range {
  ink_slice low;
  ink_slice high;
  /* enum ink_bound. */
  uint32_t low_bound;
  uint32_t high_bound;
} ink_range;

/* Deletes all rows of a range as one statement, which locks the range exclusively. Of many rows it
 * costs a short log record for each leaf of the tree, not for each row. Of a table's first tree it
 * deletes no entries of the others. `*deleted` (may be NULL): how many there were. */
int ink_delete_range(const ink_transaction *transaction, const ink_tree *tree,
                     const ink_range *range, uint64_t *deleted, ink_error *error);

/* How a cursor goes. All zeroes: forward, without locks. */
typedef struct ink_scan {
  /* In reverse key order. */
  bool backward;
  /* enum ink_lock: with a lock, rows are locked one by one as they are fetched, in their newest
   * committed version. At INK_REPEATABLE_READ the gaps that are passed are locked with them. */
  uint32_t lock;
  /* enum ink_wait. */
  uint32_t wait;
  /* Does not wait for rows that others have locked, but shows them as they were committed last,
   * without a lock: see ink_cursor_is_unlocked. At read committed, for statements that look at many
   * rows and want few. */
  bool semi_consistent;
  /* Without a lock: values come without what lies outside: see ink_cursor_parts. */
  bool outlines;
} ink_scan;

/* A place in a range. From ink_cursor_open; given back by ink_cursor_close. */
typedef struct ink_cursor ink_cursor;

/* A cursor before the first row of the range. It sees the snapshot of its statement. */
int ink_cursor_open(const ink_transaction *transaction, const ink_tree *tree, const ink_range *range,
                    const ink_scan *scan, ink_cursor **cursor, ink_error *error);
void ink_cursor_close(ink_cursor *cursor);

/* Goes to another range, direction or way of locking of the same tree: memory is used again, and at
 * read committed the statement's snapshot is looked up again. */
int ink_cursor_seek(ink_cursor *cursor, const ink_range *range, const ink_scan *scan,
                    ink_error *error);

/* The next rows, at most `max` (1 or more), into the caller's array; `*count` 0 only at the end.
 * The slices are lent out until the next call with this cursor. Rows that this transaction changes
 * after they were fetched into the cursor (up to a page ahead of what was handed out) are shown as
 * they were: a statement that changes keys it scans by collects them first. A locking cursor never
 * locks more rows than it hands out. After a failure the cursor stands where it stood: after
 * INK_LOCK_TIMEOUT it can be called again. */
int ink_cursor_fetch(ink_cursor *cursor, ink_row *rows, size_t max, size_t *count, ink_error *error);

/* With `outlines`: as ink_outline_parts and ink_outline_read, of row number `row` of those fetched
 * last. */
ink_parts ink_cursor_parts(const ink_cursor *cursor, size_t row);
int ink_cursor_read(ink_cursor *cursor, size_t row, size_t part, uint64_t from, uint8_t *to,
                    size_t len, ink_error *error);

/* As ink_unlock_row for the row that a locking cursor fetched last, if it was this cursor that
 * locked it. */
int ink_cursor_unlock_row(ink_cursor *cursor, ink_error *error);

/* Whether the row that was fetched last is not locked, and may be old. If it is wanted,
 * ink_cursor_want_row has the next fetch return it again, newest and locked, if it is still there.
 * Nothing is fetched behind such a row. */
bool ink_cursor_is_unlocked(const ink_cursor *cursor);
int ink_cursor_want_row(ink_cursor *cursor, ink_error *error);

/* About how many rows lie in a range, and the leaves of its two ends, from one visit of each. */
typedef struct ink_range_estimates {
  uint64_t rows;
  uint32_t first_page;
  uint32_t last_page;
} ink_range_estimates;
int ink_records_in_range(const ink_tree *tree, const ink_range *range,
                         ink_range_estimates *estimates, ink_error *error);

#ifdef __cplusplus
}
#endif

#endif
