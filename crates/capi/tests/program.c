/* Every part of the interface, once: compiled and run by c_programs.rs. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inkstone.h"

static ink_error error;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, error.message);   \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)
#define OK(call) CHECK((call) == INK_OK)
#define FAILS(code_, call) CHECK((call) == (code_) && error.code == (code_) && error.message[0])

static ink_slice text(const char *s) {
  ink_slice slice = {(const uint8_t *)s, strlen(s)};
  return slice;
}

static bool same(ink_slice a, const char *b) {
  return a.len == strlen(b) && memcmp(a.data, b, a.len) == 0;
}

static ink_slice number(uint8_t *bytes, uint64_t n) {
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n >> (56 - 8 * i));
  ink_slice slice = {bytes, 8};
  return slice;
}

static bool count_option(void *context, const ink_option_info *option) {
  CHECK(option->name.len > 0 && option->help.len > 0 && option->kind <= INK_OPTION_CHOICE);
  CHECK((option->kind == INK_OPTION_CHOICE) == (option->choices.len > 0));
  if (same(option->name, "page_size"))
    CHECK(option->kind == INK_OPTION_NUMBER && same(option->default_value, "16384"));
  ++*(int *)context;
  return true;
}

static bool find_option(void *context, ink_slice name, ink_slice value) {
  if (same(name, "buffer_pool_size")) *(bool *)context = same(value, "16777216");
  return true;
}

static bool find_commits(void *context, const ink_metric *metric) {
  CHECK(metric->help.len > 0);
  if (!same(metric->name, "commits")) return true;
  CHECK(!metric->is_gauge);
  *(uint64_t *)context = metric->value;
  return false;
}

static bool find_log_bytes(void *context, const ink_metric *metric) {
  if (same(metric->name, "log_bytes")) *(uint64_t *)context = metric->value;
  return true;
}

static bool find_log_writes(void *context, const ink_duration *duration) {
  CHECK(duration->help.len > 0);
  if (!same(duration->name, "log_write")) return true;
  CHECK(duration->p50_ns <= duration->p99_ns && duration->p99_ns <= duration->max_ns);
  CHECK(duration->max_ns <= duration->sum_ns);
  *(uint64_t *)context = duration->count;
  return false;
}

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;
static int redo_heard;

/* Called by a thread of the database. */
static void hear(ink_slice what) {
  pthread_mutex_lock(&hearing);
  if (what.len > 24 && !memcmp(what.data, "redo behind the opening ", 24))
    redo_heard++;
  pthread_mutex_unlock(&hearing);
}

static int times_heard(void) {
  pthread_mutex_lock(&hearing);
  int times = redo_heard;
  pthread_mutex_unlock(&hearing);
  return times;
}

static bool count_names(void *context, ink_slice name) {
  CHECK(name.len > 0);
  ++*(int *)context;
  return true;
}

static bool count_transactions(void *context, const ink_transaction_info *info) {
  if (info->tag == 7) CHECK(info->isolation == INK_REPEATABLE_READ && info->range_locks > 0);
  ++*(int *)context;
  return true;
}

static bool count_locks(void *context, const ink_lock_info *lock) {
  CHECK(same(lock->table, "t") && same(lock->tree, "primary"));
  if (lock->state == INK_LOCK_WAITING) return true;
  CHECK(lock->tag == 7 && lock->waits_for == 0);
  if (lock->kind == INK_LOCK_KIND_GAP) CHECK(lock->high_bound == INK_UNBOUNDED);
  ++((int *)context)[lock->kind];
  return true;
}

static bool find_wait(void *context, const ink_lock_info *wait) {
  CHECK(same(wait->table, "t") && wait->low.len > 0 && wait->transaction != wait->waits_for);
  CHECK(wait->state == INK_LOCK_WAITING && wait->place == 1 && !wait->inserts);
  ++*(int *)context;
  return true;
}

/* The first bytes of a number. */
static size_t first_bytes(void *context, ink_slice key) {
  const size_t bytes = *(size_t *)context;
  return key.len < bytes ? 0 : bytes;
}

/* Owners of transactions are places where the hooks note which owner was named. */
struct owner {
  struct owner *waits_for;
};

static void note_wait(void *waiter, void *blocker) {
  ((struct owner *)waiter)->waits_for = (struct owner *)blocker;
}

static size_t say_statement(void *owner, char *text, size_t room) {
  CHECK(owner != NULL && room >= 7);
  memcpy(text, "said so", 7);
  return 7;
}

static int deadlocks_found;

static void note_deadlock(ink_slice account) {
  CHECK(account.len > 0 && memcmp(account.data, "deadlock of 2 ", 14) == 0);
  deadlocks_found++;
}

static bool count_lock_waits(void *context, const ink_duration_bucket *bucket) {
  CHECK(bucket->count > 0 && bucket->longest_ns > 0);
  if (same(bucket->name, "row_lock_wait")) *(uint64_t *)context += bucket->count;
  return true;
}

static int rather_the_first(void *first, void *second) {
  return first < second ? -1 : first > second;
}

static ink_transaction *begin(ink_database *db, uint32_t isolation, ink_interrupt *interrupt) {
  ink_transaction *txn;
  OK(ink_begin(db, isolation, interrupt, &txn, &error));
  return txn;
}

static ink_database *open_database(const char *directory) {
  ink_option options[] = {{INK_STR("buffer_pool_size"), INK_STR("16m")},
                          {INK_STR("log_file_size"), INK_STR("32m")}};
  ink_database *db;
  OK(ink_open(directory, options, 2, &db, &error));
  return db;
}

static void options_and_errors(const char *directory) {
  int count = 0;
  ink_options(count_option, &count);
  CHECK(count > 15);
  ink_database *db = NULL;
  ink_option wrong = {INK_STR("page_size"), INK_STR("much")};
  FAILS(INK_INVALID, ink_open(directory, &wrong, 1, &db, &error));
  CHECK(strstr(error.message, "page_size") != NULL);
  FAILS(INK_INVALID, ink_open(NULL, NULL, 0, &db, &error));
  CHECK(ink_open(directory, &wrong, 1, &db, NULL) == INK_INVALID);
  CHECK(strlen(ink_version()) > 2);
}

static void rows_and_cursors(ink_database *db, const ink_table *table) {
  const ink_tree *tree = ink_table_tree(table, 0);
  uint8_t key[8];
  ink_buffer value = {0};
  bool found, flag;
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_statement_begin(txn, &error));
  ink_row rows[100];
  static uint8_t keys[100][8];
  for (uint64_t i = 0; i < 100; i++) {
    rows[i].key = number(keys[i], i);
    rows[i].value = INK_STR("value");
  }
  size_t done = 0;
  OK(ink_insert_many(txn, tree, rows, 100, &done, &error));
  CHECK(done == 100);
  CHECK(ink_transaction_has_changes(txn));
  rows[0].key = INK_STR("new");
  FAILS(INK_DUPLICATE_KEY, ink_insert_many(txn, tree, rows, 2, &done, &error));
  CHECK(done == 1);
  ink_mark mark;
  OK(ink_mark_set(txn, &mark, &error));
  OK(ink_delete(txn, tree, INK_STR("new"), &flag, &error));
  CHECK(flag);
  OK(ink_mark_rollback(txn, &mark, &error));
  OK(ink_get(txn, tree, INK_STR("new"), &value, &found, &error));
  CHECK(found && value.len == 5 && memcmp(value.data, "value", 5) == 0);
  OK(ink_delete(txn, tree, INK_STR("new"), NULL, &error));
  ink_slice nowhere = {NULL, 5};
  FAILS(INK_INVALID, ink_delete(txn, tree, nowhere, NULL, &error));
  CHECK(strstr(error.message, "5 bytes at a null pointer") != NULL);
  OK(ink_get(txn, tree, INK_STR("new"), &value, &found, &error));
  CHECK(!found);
  OK(ink_mark_set(txn, &mark, &error));
  ink_range part = {INK_STR("a"), INK_STR("b"), 3, INK_EXCLUDED};
  uint64_t gone = 7;
  FAILS(INK_INVALID, ink_delete_range(txn, tree, &part, &gone, &error));
  part.low_bound = INK_INCLUDED;
  OK(ink_delete_range(txn, tree, &part, &gone, &error));
  CHECK(gone == 0);
  ink_range every = {0};
  OK(ink_delete_range(txn, tree, &every, &gone, &error));
  CHECK(gone == 100);
  OK(ink_delete_range(txn, tree, &every, NULL, &error));
  OK(ink_mark_rollback(txn, &mark, &error));
  FAILS(INK_ROW_NOT_FOUND, ink_update(txn, tree, INK_STR("no"), INK_STR("x"), &error));
  OK(ink_upsert(txn, tree, number(key, 3), INK_STR("three"), &flag, &error));
  CHECK(!flag);
  OK(ink_statement_end(txn, &error));
  OK(ink_savepoint_set(txn, INK_STR("s"), &error));
  OK(ink_statement_begin(txn, &error));
  OK(ink_update(txn, tree, number(key, 4), INK_STR("four"), &error));
  OK(ink_lock_for_statement(txn, table, &error));
  CHECK(ink_is_locked_for_statement(table));
  OK(ink_statement_rollback(txn, &error));
  CHECK(!ink_is_locked_for_statement(table) && !ink_is_locked_for_statement(NULL));
  OK(ink_update(txn, tree, number(key, 5), INK_STR("five"), &error));
  OK(ink_savepoint_rollback(txn, INK_STR("s"), &error));
  OK(ink_savepoint_release(txn, INK_STR("s"), &error));
  FAILS(INK_NOT_FOUND, ink_savepoint_rollback(txn, INK_STR("s"), &error));

  ink_range range = {{0}, {0}, INK_INCLUDED, INK_EXCLUDED};
  uint8_t low[8], high[8];
  range.low = number(low, 10);
  range.high = number(high, 90);
  ink_scan scan = {0};
  ink_cursor *cursor;
  OK(ink_cursor_open(txn, tree, &range, &scan, &cursor, &error));
  size_t total = 0, count;
  do {
    OK(ink_cursor_fetch(cursor, rows, 7, &count, &error));
    for (size_t i = 0; i < count; i++) {
      CHECK(memcmp(rows[i].key.data, number(key, 10 + total + i).data, 8) == 0);
      CHECK(same(rows[i].value, "value"));
    }
    total += count;
  } while (count > 0);
  CHECK(total == 80);
  scan.backward = true;
  range.high_bound = INK_UNBOUNDED;
  OK(ink_cursor_seek(cursor, &range, &scan, &error));
  OK(ink_cursor_fetch(cursor, rows, 2, &count, &error));
  CHECK(count == 2 && memcmp(rows[0].key.data, number(key, 99).data, 8) == 0);
  scan.lock = INK_LOCK_EXCLUSIVE;
  OK(ink_cursor_seek(cursor, &range, &scan, &error));
  OK(ink_cursor_fetch(cursor, rows, 3, &count, &error));
  CHECK(count == 3 && memcmp(rows[2].key.data, number(key, 97).data, 8) == 0);
  OK(ink_cursor_unlock_row(cursor, &error));
  ink_range_estimates estimate;
  OK(ink_records_in_range(tree, &range, &estimate, &error));
  CHECK(estimate.rows >= 90 && estimate.rows <= 92); /* deleted rows count */
  CHECK(estimate.first_page > 0 && estimate.first_page == estimate.last_page);
  OK(ink_commit(txn, INK_SYNC, &error));
  FAILS(INK_TRANSACTION_STATE, ink_commit(txn, INK_SYNC, &error));
  FAILS(INK_TRANSACTION_STATE, ink_cursor_fetch(cursor, rows, 3, &count, &error));
  ink_transaction_free(txn);
  ink_cursor_close(cursor);
  ink_buffer_free(&value);
  CHECK(value.data == NULL);
}

static ink_part part(uint64_t at, uint64_t len) {
  ink_part part = {at, len};
  return part;
}

/* Rows of a number, a long text, and a number: the text lies outside, and is read when wanted. */
static void parts_of_values(ink_database *db, const ink_tree *tree) {
  enum { TEXT = 200000, VALUE = TEXT + 16 };
  static uint8_t bytes[VALUE], piece[1000];
  for (size_t i = 0; i < VALUE; i++) bytes[i] = (uint8_t)(i * i / 7);
  const ink_slice value = {bytes, VALUE};
  const ink_part text = part(8, TEXT), wrong[] = {part(8, 50), part(9, 50)};
  const ink_parts parts = {&text, 1}, none = {NULL, 0}, out_of_order = {wrong, 2};
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_insert_with_parts(txn, tree, INK_STR("pa"), value, parts, INK_LOCK_EXCLUSIVE, &error));
  FAILS(INK_DUPLICATE_KEY, ink_insert_with_parts(txn, tree, INK_STR("pa"), value, parts,
                                                 INK_LOCK_EXCLUSIVE, &error));
  FAILS(INK_INVALID, ink_update_with_parts(txn, tree, INK_STR("pa"), value, out_of_order, &error));
  bool inserted;
  OK(ink_upsert_with_parts(txn, tree, INK_STR("pb"), value, none, &inserted, &error));
  CHECK(inserted);
  const ink_row rows[] = {{INK_STR("pc"), value}, {INK_STR("pd"), INK_STR("short")}};
  const ink_parts parts_of_rows[] = {parts, none};
  size_t done;
  OK(ink_insert_many_with_parts(txn, tree, rows, parts_of_rows, 2, &done, &error));
  CHECK(done == 2);
  OK(ink_commit(txn, INK_SYNC, &error));
  ink_transaction_free(txn);

  uint64_t logged = 0, before;
  txn = begin(db, INK_READ_COMMITTED, NULL);
  ink_metrics(db, find_log_bytes, &before);
  bytes[0]++;
  OK(ink_update_with_parts(txn, tree, INK_STR("pa"), value, parts, &error));
  ink_metrics(db, find_log_bytes, &logged);
  CHECK(logged - before < 1024);
  ink_outline *outline;
  OK(ink_get_outline(txn, tree, INK_STR("pz"), &outline, &error));
  CHECK(outline == NULL && ink_outline_parts(outline).count == 0);
  OK(ink_get_outline(txn, tree, INK_STR("pa"), &outline, &error));
  ink_slice rest = ink_outline_inline(outline);
  CHECK(rest.len == 16 && !memcmp(rest.data, bytes, 8));
  CHECK(!memcmp(rest.data + 8, bytes + 8 + TEXT, 8));
  const ink_parts outside = ink_outline_parts(outline);
  CHECK(outside.count == 1 && outside.parts[0].at == 8 && outside.parts[0].len == TEXT);
  for (uint64_t from = 0; from < TEXT; from += sizeof piece) {
    OK(ink_outline_read(outline, 0, from, piece, sizeof piece, &error));
    CHECK(!memcmp(piece, bytes + 8 + from, sizeof piece));
  }
  OK(ink_outline_read(outline, 0, 77, piece, 5, &error)); /* and back */
  CHECK(!memcmp(piece, bytes + 8 + 77, 5));
  FAILS(INK_INVALID, ink_outline_read(outline, 0, TEXT - 4, piece, 5, &error));
  FAILS(INK_INVALID, ink_outline_read(outline, 0, UINT64_MAX, piece, 5, &error));
  FAILS(INK_INVALID, ink_outline_read(outline, 1, 0, piece, 5, &error));
  FAILS(INK_INVALID, ink_outline_read(outline, 0, 0, NULL, 5, &error));

  ink_range range = {INK_STR("pa"), INK_STR("pz"), INK_INCLUDED, INK_EXCLUDED};
  ink_scan scan = {0};
  scan.outlines = true;
  ink_cursor *cursor;
  ink_row found[5];
  size_t count;
  OK(ink_cursor_open(txn, tree, &range, &scan, &cursor, &error));
  OK(ink_cursor_fetch(cursor, found, 5, &count, &error));
  CHECK(count == 4 && found[0].value.len == 16 && found[1].value.len == 0);
  CHECK(ink_cursor_parts(cursor, 1).parts[0].len == VALUE); /* as a whole */
  CHECK(found[2].value.len == 16 && same(found[3].value, "short"));
  CHECK(ink_cursor_parts(cursor, 2).count == 1 && ink_cursor_parts(cursor, 2).parts[0].at == 8);
  CHECK(ink_cursor_parts(cursor, 3).count == 0 && ink_cursor_parts(cursor, 4).count == 0);
  OK(ink_cursor_read(cursor, 1, 0, 8 + 999, piece, sizeof piece, &error));
  CHECK(!memcmp(piece, bytes + 8 + 999, sizeof piece));
  OK(ink_cursor_read(cursor, 0, 0, 999, piece, sizeof piece, &error));
  CHECK(!memcmp(piece, bytes + 8 + 999, sizeof piece));
  FAILS(INK_INVALID, ink_cursor_read(cursor, 3, 0, 0, piece, 1, &error));
  FAILS(INK_INVALID, ink_cursor_read(cursor, 0, 1, 0, piece, 1, &error));
  OK(ink_rollback(txn, &error));
  FAILS(INK_TRANSACTION_STATE, ink_outline_read(outline, 0, 0, piece, 5, &error));
  FAILS(INK_TRANSACTION_STATE, ink_cursor_read(cursor, 0, 0, 0, piece, 5, &error));
  ink_cursor_close(cursor);
  ink_outline_free(outline);
  ink_transaction_free(txn);
  txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_delete_range(txn, tree, &range, NULL, &error));
  OK(ink_commit(txn, INK_SYNC, &error));
  ink_transaction_free(txn);
}

struct waiting {
  ink_transaction *txn;
  const ink_tree *tree;
  int code;
};

static void *update_five(void *argument) {
  struct waiting *waiting = (struct waiting *)argument;
  uint8_t key[8];
  waiting->code = ink_update(waiting->txn, waiting->tree, number(key, 5), INK_STR("x"), NULL);
  return NULL;
}

static void locks_and_interrupts(ink_database *db, const ink_tree *tree) {
  uint8_t key[8];
  ink_buffer value = {0};
  bool found, locked;
  ink_transaction *holder = begin(db, INK_REPEATABLE_READ, NULL);
  ink_transaction_set_tag(holder, 7);
  OK(ink_take_snapshot(holder, &error));
  OK(ink_get_locking(holder, tree, number(key, 5), INK_LOCK_EXCLUSIVE, INK_WAIT, &value, &found,
                     &locked, &error));
  CHECK(found && locked);
  OK(ink_unlock_row(holder, tree, number(key, 5), &error)); /* stays at this level */
  ink_range range = {number(key, 99), {0}, INK_EXCLUDED, INK_UNBOUNDED};
  ink_scan scan = {false, INK_LOCK_SHARED, INK_WAIT, false, false};
  ink_cursor *cursor;
  size_t count;
  ink_row row;
  OK(ink_cursor_open(holder, tree, &range, &scan, &cursor, &error));
  OK(ink_cursor_fetch(cursor, &row, 1, &count, &error));
  CHECK(count == 0);
  ink_cursor_close(cursor);

  ink_interrupt *interrupt = ink_interrupt_new();
  ink_transaction *other = begin(db, INK_READ_UNCOMMITTED, interrupt);
  FAILS(INK_LOCK_NOT_AVAILABLE,
        ink_get_locking(other, tree, number(key, 5), INK_LOCK_SHARED, INK_NO_WAIT, &value, &found,
                        NULL, &error));
  OK(ink_get_locking(other, tree, number(key, 5), INK_LOCK_SHARED, INK_SKIP_LOCKED, &value, &found,
                     &locked, &error));
  CHECK(!found && !locked);
  OK(ink_set_lock_wait_timeout(other, 20, &error));
  FAILS(INK_LOCK_TIMEOUT, ink_insert(other, tree, INK_STR("zz"), INK_STR(""), &error));
  OK(ink_set_lock_wait_timeout(other, 60000, &error));

  struct waiting waiting = {other, tree, -1};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, update_five, &waiting) == 0);
  int waits = 0;
  while (waits == 0) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
    OK(ink_waits(db, find_wait, &waits, &error));
  }
  int transactions = 0, locks[3] = {0};
  OK(ink_transactions(db, count_transactions, &transactions, &error));
  OK(ink_locks(db, count_locks, locks, &error));
  CHECK(transactions == 2 && locks[INK_LOCK_KIND_ROW] == 1 && locks[INK_LOCK_KIND_GAP] == 1);
  OK(ink_status_text(db, &value, &error));
  CHECK(strstr((char *)value.data, "Log sequence number") != NULL);
  CHECK(strstr((char *)value.data, "waits for transaction") != NULL);
  CHECK(strstr((char *)value.data, "place 1 in the queue, to lock exclusive in tree primary of table t") != NULL);
  ink_interrupt_raise(interrupt);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waiting.code == INK_INTERRUPTED);
  ink_interrupt_clear(interrupt);
  ink_interrupt_free(interrupt);
  OK(ink_rollback(holder, &error));
  OK(ink_update(other, tree, number(key, 5), INK_STR("5"), &error));
  ink_transaction_free(other);
  ink_transaction_free(holder);
  OK(ink_latest_deadlock(db, &value, &error));
  CHECK(value.len == 0);
  ink_buffer_free(&value);
}

static void lock_wait_hooks(ink_database *db, const ink_tree *tree) {
  uint8_t key[8];
  struct owner owners[2] = {{NULL}, {NULL}};
  ink_transaction *txns[2];
  ink_set_lock_wait_hooks(db, NULL, note_wait, rather_the_first, say_statement, note_deadlock);
  for (int i = 0; i < 2; i++) {
    txns[i] = begin(db, INK_READ_COMMITTED, NULL);
    ink_transaction_set_owner(txns[i], &owners[i]);
    OK(ink_update(txns[i], tree, number(key, 5 + (uint64_t)i), INK_STR("x"), &error));
  }
  OK(ink_update(txns[0], tree, number(key, 7), INK_STR("x"), &error));
  /* Now the second is the cheaper one, and closes the circle. */
  struct waiting waiting = {txns[1], tree, -1};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, update_five, &waiting) == 0);
  FAILS(INK_DEADLOCK, ink_update(txns[0], tree, number(key, 6), INK_STR("x"), &error));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waiting.code == INK_OK);
  CHECK(owners[0].waits_for == &owners[1] && owners[1].waits_for == &owners[0]);
  ink_transaction_free(txns[0]);
  ink_transaction_free(txns[1]);
  ink_set_lock_wait_hooks(db, NULL, NULL, NULL, NULL, NULL);
  CHECK(deadlocks_found == 1);
  ink_buffer account = {0};
  OK(ink_latest_deadlock(db, &account, &error));
  CHECK(strstr((char *)account.data, "tree primary of table t") != NULL);
  CHECK(strstr((char *)account.data, "\n    said so\n") != NULL);
  ink_buffer_free(&account);
  uint64_t waits = 0;
  ink_duration_buckets(db, count_lock_waits, &waits);
  CHECK(waits >= 2);
}

static void rows_without_transactions(ink_database *db, const ink_tree *tree) {
  const ink_tree_row rows[] = {{tree, INK_STR("one"), INK_STR("1")}, {tree, INK_STR("more"), INK_STR("2")}};
  const ink_tree_row none = {NULL, INK_STR("one"), INK_STR("3")};
  ink_buffer value = {0};
  bool found;
  OK(ink_write_rows(db, rows, 2, INK_LAZY, &error));
  OK(ink_read_row(db, tree, INK_STR("one"), &value, &found, &error));
  CHECK(found && value.len == 1 && value.data[0] == '1');
  OK(ink_read_row(db, tree, INK_STR("other"), &value, &found, &error));
  CHECK(!found && value.len == 0);
  /* All or none. */
  const ink_tree_row half[] = {{tree, INK_STR("more"), INK_STR("3")}, none};
  FAILS(INK_INVALID, ink_write_rows(db, half, 2, INK_LAZY, &error));
  OK(ink_read_row(db, tree, INK_STR("more"), &value, &found, &error));
  CHECK(found && value.data[0] == '2');
  ink_buffer_free(&value);
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_delete(txn, tree, INK_STR("one"), NULL, &error));
  OK(ink_delete(txn, tree, INK_STR("more"), NULL, &error));
  OK(ink_commit(txn, INK_LAZY, &error));
  ink_transaction_free(txn);
}

static void commit_in_two(ink_database *db, const ink_tree *tree) {
  ink_transaction *txn = begin(db, INK_SNAPSHOT, NULL);
  CHECK(ink_transaction_id(txn) > 0);
  OK(ink_insert(txn, tree, INK_STR("two"), INK_STR(""), &error));
  FAILS(INK_TRANSACTION_STATE, ink_commit_wait(txn, INK_SYNC, &error));
  OK(ink_prepare(txn, INK_STR("xid"), INK_SYNC, &error));
  int xids = 0;
  OK(ink_prepared(db, count_names, &xids, &error));
  CHECK(xids == 1);
  const ink_slice tables[] = {INK_STR("none"), INK_STR("t")};
  FAILS(INK_LOCK_TIMEOUT, ink_wait_for_prepared(db, tables, 2, 20, NULL, &error));
  OK(ink_wait_for_prepared(db, tables, 1, 20, NULL, &error));
  OK(ink_commit_ordered(txn, INK_LAZY, &error));
  OK(ink_commit_wait(txn, INK_SYNC, &error));
  ink_transaction_free(txn);

  txn = begin(db, INK_SERIALIZABLE, NULL);
  OK(ink_insert(txn, tree, INK_STR("three"), INK_STR(""), &error));
  OK(ink_prepare(txn, INK_STR("undone"), INK_SYNC, &error));
  OK(ink_release_shared_locks(txn, &error));
  OK(ink_rollback(txn, &error));
  ink_transaction_free(txn);
  txn = begin(db, INK_SERIALIZABLE, NULL);
  OK(ink_prepare(txn, INK_STR("nothing"), INK_SYNC, &error));
  ink_transaction_free(txn);
  txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_insert(txn, tree, INK_STR("four"), INK_STR(""), &error));
  OK(ink_prepare(txn, INK_STR("kept"), INK_SYNC, &error));
  ink_transaction_free(txn);
  OK(ink_flush_log(db, INK_WRITE, &error));
  OK(ink_flush_log(db, INK_SYNC, &error));
}

static void snapshots_are_older_than_what_is_filled_later(ink_database *db) {
  ink_transaction *old = begin(db, INK_REPEATABLE_READ, NULL), *writing;
  ink_buffer value = {0};
  ink_table *table;
  bool found;
  OK(ink_table_open(db, INK_STR("moved"), &table, &error));
  const ink_tree *tree = ink_table_find_tree(table, INK_STR("index"));
  OK(ink_take_snapshot(old, &error));
  OK(ink_get(old, tree, INK_STR("a"), &value, &found, &error));
  CHECK(!found);
  writing = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_insert(writing, tree, INK_STR("a"), INK_STR("x"), &error));
  OK(ink_commit(writing, INK_LAZY, &error));
  OK(ink_complete_tree(db, tree, &error));
  FAILS(INK_TABLE_CHANGED, ink_get(old, tree, INK_STR("a"), &value, &found, &error));
  OK(ink_complete_tree_for_all(db, tree, &error));
  OK(ink_get(old, tree, INK_STR("a"), &value, &found, &error));
  CHECK(!found);
  ink_transaction_free(writing);
  ink_transaction_free(old);
  ink_buffer_free(&value);
  ink_table_close(table);
}

static void changes_are_tracked(ink_database *db) {
  ink_change_tracker *tracker;
  ink_changed_rows changed;
  ink_table *table;
  ink_buffer value = {0};
  bool found;
  OK(ink_create_table(db, INK_STR("tracked"), NULL, 0, &error));
  OK(ink_table_open(db, INK_STR("tracked"), &table, &error));
  const ink_tree *tree = ink_table_tree(table, 0);
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_insert(txn, tree, INK_STR("a"), INK_STR("1"), &error));
  FAILS(INK_LOCK_TIMEOUT, ink_track_changes(db, tree, 1 << 20, 1, &tracker, &error));
  OK(ink_commit(txn, INK_LAZY, &error));
  ink_transaction_free(txn);
  OK(ink_track_changes(db, tree, 250, 1000, &tracker, &error));
  OK(ink_take_changed_rows(tracker, &changed, &error));
  CHECK(changed.count == 0 && !changed.too_many);
  ink_transaction *before = changed.seen;
  txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_insert(txn, tree, INK_STR("b"), INK_STR("2"), &error));
  OK(ink_commit(txn, INK_LAZY, &error));
  ink_transaction_free(txn);
  OK(ink_take_changed_rows(tracker, &changed, &error));
  CHECK(changed.count == 1 && changed.keys[0].len == 1 && *changed.keys[0].data == 'b');
  OK(ink_get(before, tree, changed.keys[0], &value, &found, &error));
  CHECK(!found);
  OK(ink_get(changed.seen, tree, changed.keys[0], &value, &found, &error));
  CHECK(found && *value.data == '2');
  ink_transaction_free(before);
  ink_transaction_free(changed.seen);
  txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_insert(txn, tree, INK_STR("c"), INK_STR("3"), &error));
  OK(ink_insert(txn, tree, INK_STR("d"), INK_STR("4"), &error));
  OK(ink_insert(txn, tree, INK_STR("e"), INK_STR("5"), &error));
  ink_transaction_free(txn);
  OK(ink_take_changed_rows(tracker, &changed, &error));
  CHECK(changed.too_many && !changed.seen && changed.count == 0);
  ink_change_tracker_free(tracker);
  ink_change_tracker_free(NULL);
  FAILS(INK_INVALID, ink_take_changed_rows(NULL, &changed, &error));
  ink_buffer_free(&value);
  ink_table_close(table);
  OK(ink_drop_table(db, INK_STR("tracked"), &error));
}

static void rows_are_sorted(ink_database *db) {
  const char *keys[] = {"c", "a", "b", "a", "d"};
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  ink_sorter *sorter;
  ink_inserted inserted;
  ink_row repeated;
  ink_table *table;
  ink_buffer value = {0};
  uint64_t number;
  bool found;
  OK(ink_create_table(db, INK_STR("sorted"), NULL, 0, &error));
  OK(ink_table_open(db, INK_STR("sorted"), &table, &error));
  const ink_tree *tree = ink_table_tree(table, 0);
  OK(ink_sorter_new(db, &sorter, &error));
  for (size_t i = 0; i < 5; i++) {
    ink_slice key = {(const uint8_t *)keys[i], 1}, text = {(const uint8_t *)"01234" + i, 1};
    if (i != 3)
      OK(ink_sorter_add(sorter, key, text, &error));
  }
  CHECK(ink_sorter_count(sorter) == 4);
  OK(ink_sorter_insert(sorter, txn, tree, 3, &inserted, &error));
  CHECK(inserted.rows == 3 && inserted.bytes == 6 && !inserted.refused.key.data);
  OK(ink_get(txn, tree, INK_STR("c"), &value, &found, &error));
  CHECK(found && *value.data == '0');
  OK(ink_get(txn, tree, INK_STR("d"), &value, &found, &error));
  CHECK(!found);
  const ink_slice wanted[] = {INK_STR("a"), INK_STR("d")};
  size_t pages = 1;
  OK(ink_prefetch(txn, tree, wanted, 2, &pages, &error));
  CHECK(pages == 0);
  OK(ink_sorter_insert(sorter, txn, tree, 3, &inserted, &error));
  CHECK(inserted.rows == 1);
  OK(ink_sorter_insert(sorter, txn, tree, 3, &inserted, &error));
  CHECK(inserted.rows == 0);
  FAILS(INK_INVALID, ink_sorter_add(sorter, INK_STR("d"), INK_STR("5"), &error));
  OK(ink_sorter_first_repeated(sorter, &number, &repeated, &found, &error));
  CHECK(!found);
  FAILS(INK_DUPLICATE_KEY, ink_sorter_insert(sorter, txn, tree, 3, &inserted, &error));
  CHECK(inserted.rows == 0 && *inserted.refused.key.data == 'a' && *inserted.refused.value.data == '1');
  ink_sorter_free(sorter);

  OK(ink_sorter_new(db, &sorter, &error));
  for (size_t i = 0; i < 5; i++) {
    ink_slice key = {(const uint8_t *)keys[i], 1}, text = {(const uint8_t *)"01234" + i, 1};
    OK(ink_sorter_add(sorter, key, text, &error));
  }
  OK(ink_sorter_first_repeated(sorter, &number, &repeated, &found, &error));
  CHECK(found && number == 3 && *repeated.key.data == 'a' && *repeated.value.data == '3');
  ink_sorter_free(sorter);
  ink_transaction_free(txn);
  ink_buffer_free(&value);
  ink_table_close(table);
  OK(ink_drop_table(db, INK_STR("sorted"), &error));
}

static bool find_placed(void *context, ink_slice name, ink_slice value) {
  *(int *)context += same(name, "page_placement") && same(value, "placed");
  *(int *)context += same(name, "page_compression") && same(value, "none");
  return true;
}

static bool stop_at_once(void *context, ink_slice name, ink_slice value) {
  ++*(int *)context;
  return name.len + value.len == 0;
}

static void tables_with_options(ink_database *db) {
  ink_option options[] = {{INK_STR("page_placement"), INK_STR("placed")},
                          {INK_STR("page_compression"), INK_STR("none")}};
  ink_option wrong[] = {{INK_STR("page_placement"), INK_STR("in_place")},
                        {INK_STR("page_compression"), INK_STR("lz4")}};
  ink_slice secondary = INK_STR("index");
  ink_table *table;
  int found = 0, visited = 0;
  FAILS(INK_INVALID, ink_create_table_with(db, INK_STR("placed"), NULL, 0, wrong, 2, &error));
  FAILS(INK_NOT_FOUND, ink_table_open(db, INK_STR("placed"), &table, &error));
  OK(ink_create_table_with(db, INK_STR("placed"), &secondary, 1, options, 2, &error));
  FAILS(INK_ALREADY_EXISTS, ink_create_table_with(db, INK_STR("placed"), NULL, 0, NULL, 0, &error));
  OK(ink_table_open(db, INK_STR("placed"), &table, &error));
  CHECK(ink_table_tree_count(table) == 2);
  ink_table_options(table, find_placed, &found);
  ink_table_options(table, stop_at_once, &visited);
  ink_table_options(table, NULL, NULL);
  CHECK(found == 2 && visited == 1);
  ink_table_close(table);
  OK(ink_drop_table(db, INK_STR("placed"), &error));
}

static bool find_reference(void *context, ink_slice table, const ink_reference *reference) {
  *(int *)context += same(table, "child") && same(reference->name, "to_parent") && same(reference->parent, "mother") &&
                     reference->column_count == 2 && same(reference->columns[1], "b") &&
                     same(reference->parent_columns[0], "x") && reference->on_delete == INK_CASCADE &&
                     reference->on_update == INK_SET_NULL;
  return true;
}

static void references_between_tables(ink_database *db) {
  const ink_slice columns[] = {INK_STR("a"), INK_STR("b")}, parent_columns[] = {INK_STR("x"), INK_STR("y")};
  ink_reference reference = {
      INK_STR("to_parent"), INK_STR("parent"), columns, parent_columns, 2, INK_CASCADE, INK_SET_NULL};
  ink_table_references child = {INK_STR("child"), &reference, 1};
  int of = 0, to = 0, all = 0;
  OK(ink_create_table(db, INK_STR("parent"), NULL, 0, &error));
  OK(ink_create_table(db, INK_STR("child"), NULL, 0, &error));
  const uint64_t version = ink_references_version(db);
  OK(ink_set_references(db, &child, 1, &error));
  CHECK(ink_references_version(db) > version);
  OK(ink_rename_table(db, INK_STR("parent"), INK_STR("mother"), &error));
  OK(ink_rename_table_alone(db, INK_STR("mother"), INK_STR("copy"), &error));
  OK(ink_references(db, INK_STR("child"), find_reference, &of, &error));
  OK(ink_references_to(db, INK_STR("mother"), find_reference, &to, &error));
  OK(ink_references(db, INK_STR(""), find_reference, &all, &error));
  CHECK(of == 1 && to == 1 && all == 1);
  reference.on_delete = 9;
  FAILS(INK_INVALID, ink_set_references(db, &child, 1, &error));
  const ink_table_references missing = {INK_STR("missing"), NULL, 0};
  FAILS(INK_NOT_FOUND, ink_set_references(db, &missing, 1, &error));
  OK(ink_drop_table(db, INK_STR("child"), &error));
  OK(ink_references_to(db, INK_STR("mother"), find_reference, &to, &error));
  CHECK(to == 1);
  OK(ink_drop_table(db, INK_STR("copy"), &error));
}

static void tables(ink_database *db, const char *directory) {
  ink_slice secondary = INK_STR("index");
  ink_buffer path = {0}, report = {0};
  ink_table *table;
  references_between_tables(db);
  OK(ink_create_table(db, INK_STR("other"), &secondary, 1, &error));
  FAILS(INK_ALREADY_EXISTS, ink_create_table(db, INK_STR("other"), NULL, 0, &error));
  OK(ink_rename_table(db, INK_STR("other"), INK_STR("moved"), &error));
  OK(ink_create_tree(db, INK_STR("moved"), INK_STR("more"), &error));
  snapshots_are_older_than_what_is_filled_later(db);
  OK(ink_rename_tree(db, INK_STR("moved"), INK_STR("more"), INK_STR("most"), &error));
  OK(ink_drop_tree(db, INK_STR("moved"), INK_STR("index"), &error));
  OK(ink_table_open(db, INK_STR("moved"), &table, &error));
  CHECK(ink_table_tree_count(table) == 2 && ink_table_tree(table, 2) == NULL);
  CHECK(same(ink_tree_name(ink_table_tree(table, 0)), "primary"));
  CHECK(ink_table_find_tree(table, INK_STR("index")) == NULL);
  const ink_tree *most = ink_table_find_tree(table, INK_STR("most"));
  CHECK(most != NULL && ink_tree_number(most) == 2);

  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  uint8_t key[8];
  for (uint64_t i = 0; i < 2000; i++)
    OK(ink_insert(txn, ink_table_tree(table, 0), number(key, i), INK_STR("value"), &error));
  OK(ink_insert(txn, most, INK_STR("k"), INK_STR("v"), &error));
  ink_export *export_handle;
  FAILS(INK_TRANSACTION_STATE, ink_export_begin(table, &export_handle, &error));
  OK(ink_commit(txn, INK_LAZY, &error));
  ink_transaction_free(txn);

  ink_table_estimates estimates;
  ink_tree_estimates of_tree;
  OK(ink_estimate_table(table, &estimates, &error));
  CHECK(estimates.rows > 1000 && estimates.rows < 4000 && estimates.page_bytes == 16384);
  OK(ink_estimate_tree(most, &of_tree, &error));
  CHECK(of_tree.rows == 1 && of_tree.pages == 1 && of_tree.height == 1);
  for (size_t bytes = 7; bytes <= 8; bytes++) {
    uint64_t values;
    OK(ink_estimate_values(ink_table_tree(table, 0), 10, first_bytes, &bytes, &values, &error));
    CHECK(values == (bytes == 7 ? 8 : 2000));
  }
  OK(ink_verify_table(table, &report, &error));
  CHECK(strstr((char *)report.data, "tree primary: 2000 rows") != NULL);

  OK(ink_export_begin(table, &export_handle, &error));
  OK(ink_table_path(table, &path, &error));
  char copy[1000], command[3000];
  snprintf(copy, sizeof copy, "%s.copy", directory);
  snprintf(command, sizeof command, "cp '%.*s' '%s'", (int)path.len, (char *)path.data, copy);
  CHECK(system(command) == 0);
  ink_export_end(export_handle);
  ink_import_tree trees[] = {{0, INK_STR("primary")}, {2, INK_STR("index")}};
  OK(ink_import_table(db, INK_STR("imported"), copy, trees, 2, NULL, 0, &error));
  FAILS(INK_INVALID, ink_import_table(db, INK_STR("again"), copy, trees + 1, 1, NULL, 0, &error));
  CHECK(!ink_table_is_replaced(table, INK_STR("moved")));
  OK(ink_replace_table(db, INK_STR("imported"), INK_STR("moved"), &error));
  CHECK(ink_table_is_replaced(table, INK_STR("moved")));
  CHECK(!ink_table_is_replaced(table, INK_STR("none")));
  ink_table_close(table);
  OK(ink_create_table(db, INK_STR("empty"), NULL, 0, &error));
  ink_slice empty[] = {INK_STR("empty")}, full[] = {INK_STR("moved")};
  OK(ink_replace_tables(db, empty, full, 1, &error));
  CHECK(!ink_recovered(db));
  CHECK(ink_key_bytes_max(db) == 3072);
  int names = 0;
  OK(ink_tables(db, count_names, &names, &error));
  CHECK(names == 2);
  OK(ink_drop_table(db, INK_STR("moved"), &error));
  OK(ink_checkpoint(db, &error));
  ink_buffer_free(&path);
  ink_buffer_free(&report);
}

/* A visitor that is missing is noticed before it is called. */
static void without_visitors(ink_database *db, const ink_tree *tree) {
  uint64_t values;
  ink_options(NULL, NULL);
  ink_option_values(db, NULL, NULL);
  ink_metrics(db, NULL, NULL);
  ink_durations(db, NULL, NULL);
  ink_duration_buckets(db, NULL, NULL);
  OK(ink_tables(db, NULL, NULL, &error));
  OK(ink_transactions(db, NULL, NULL, &error));
  OK(ink_prepared(db, NULL, NULL, &error));
  OK(ink_waits(db, NULL, NULL, &error));
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  OK(ink_update(txn, tree, INK_STR("two"), INK_STR("2"), &error));
  OK(ink_locks(db, NULL, NULL, &error));
  ink_transaction_free(txn);
  FAILS(INK_INVALID, ink_estimate_values(tree, 1, NULL, NULL, &values, &error));
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  options_and_errors(argv[1]);
  ink_database *db = open_database(argv[1]), *second;
  FAILS(INK_IN_USE, ink_open(argv[1], NULL, 0, &second, &error));
  bool set = false;
  ink_option_values(db, find_option, &set);
  CHECK(set);
  ink_table *table;
  FAILS(INK_NOT_FOUND, ink_table_open(db, INK_STR("t"), &table, &error));
  OK(ink_create_table(db, INK_STR("t"), NULL, 0, &error));
  OK(ink_table_open(db, text("t"), &table, &error));
  rows_and_cursors(db, table);
  parts_of_values(db, ink_table_tree(table, 0));
  locks_and_interrupts(db, ink_table_tree(table, 0));
  lock_wait_hooks(db, ink_table_tree(table, 0));
  rows_without_transactions(db, ink_table_tree(table, 0));
  commit_in_two(db, ink_table_tree(table, 0));
  changes_are_tracked(db);
  rows_are_sorted(db);
  tables(db, argv[1]);
  tables_with_options(db);
  without_visitors(db, ink_table_tree(table, 0));
  uint64_t commits = 0;
  ink_metrics(db, find_commits, &commits);
  CHECK(commits > 5);
  uint64_t writes = 0;
  ink_durations(db, find_log_writes, &writes);
  CHECK(writes > 5);
  ink_table_close(table);
  OK(ink_close_as(db, INK_LOG_ONLY, &error));

  /* Of the recovery nothing is told. */
  OK(ink_open_watched(argv[1], NULL, 0, NULL, NULL, &db, &error));
  CHECK(ink_recovered(db));
  ink_buffer report = {0};
  OK(ink_open_report(db, &report, &error));
  CHECK(strstr((char *)report.data, "2 prepared transactions kept") != NULL);
  ink_buffer_free(&report);
  ink_tell_when_recovered(db, NULL);
  ink_tell_when_recovered(db, hear);
  for (int tenths = 0; tenths < 300 && times_heard() == 0; tenths++)
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  CHECK(times_heard() == 1);
  int xids = 0;
  OK(ink_prepared(db, count_names, &xids, &error));
  CHECK(xids == 2); /* also the one that had changed nothing */
  OK(ink_commit_by_xid(db, INK_STR("nothing"), &error));
  OK(ink_commit_by_xid(db, INK_STR("kept"), &error));
  FAILS(INK_NOT_FOUND, ink_rollback_by_xid(db, INK_STR("undone"), &error));
  OK(ink_table_open(db, INK_STR("t"), &table, &error));
  ink_transaction *txn = begin(db, INK_READ_COMMITTED, NULL);
  ink_buffer value = {0};
  bool found;
  const char *keys[] = {"two", "three", "four"};
  for (int i = 0; i < 3; i++) {
    OK(ink_get(txn, ink_table_tree(table, 0), text(keys[i]), &value, &found, &error));
    CHECK(found == (i != 1));
  }
  ink_transaction_free(txn);
  ink_buffer_free(&value);
  ink_table_close(table);
  OK(ink_close_as(db, INK_SLOW, &error));
  OK(ink_open(argv[1], NULL, 0, &db, &error));
  CHECK(!ink_recovered(db));
  FAILS(INK_INVALID, ink_close_as(db, 3, &error)); /* and is given back */
  OK(ink_open(argv[1], NULL, 0, &db, &error));
  OK(ink_close(db, &error));
  printf("all is well\n");
  return 0;
}
