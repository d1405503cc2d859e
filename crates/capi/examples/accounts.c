/* Accounts from C: four threads move money between them, each transfer in a transaction that is
 * repeated while others are in its way; then the database is opened again, and nothing is lost.
 *
 *     cargo build --release -p inkstone-capi
 *     gcc -I crates/capi/include crates/capi/examples/accounts.c \
 *         target/release/libinkstone_capi.a -lpthread -ldl -lm -o accounts
 *     ./accounts accounts.ink
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inkstone.h"

enum { ACCOUNTS = 100, EACH = 50, THREADS = 4, TRANSFERS = 500 };

struct bank {
  ink_database *db;
  ink_table *table;
};

/* What cannot be helped here ends the program. */
static void check(int code, const ink_error *error) {
  if (code == INK_OK) return;
  fprintf(stderr, "error %d: %s\n", code, error->message);
  exit(1);
}

/* Big-endian keys sort as their numbers do. */
static ink_slice key_of(uint32_t account, uint8_t bytes[4]) {
  for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(account >> (24 - 8 * i));
  return (ink_slice){bytes, 4};
}

/* Adds to an account, of which it locks the row first: no other change comes in between. */
static int add(ink_transaction *txn, const ink_tree *rows, uint32_t account, int32_t amount,
               ink_buffer *value, ink_error *error) {
  uint8_t key[4];
  bool found = false;
  int32_t balance = 0;
  int code = ink_get_locking(txn, rows, key_of(account, key), INK_LOCK_EXCLUSIVE, INK_WAIT, value,
                             &found, NULL, error);
  if (code != INK_OK) return code;
  if (found) memcpy(&balance, value->data, sizeof balance);
  balance += amount;
  return ink_upsert(txn, rows, key_of(account, key),
                    (ink_slice){(const uint8_t *)&balance, sizeof balance}, NULL, error);
}

/* Both changes or none. A deadlock is no mishap: the transaction was rolled back, and is repeated.
 */
static void transfer(const struct bank *bank, uint32_t from, uint32_t to, ink_buffer *value) {
  const ink_tree *rows = ink_table_tree(bank->table, 0);
  ink_error error;
  int code;
  do {
    ink_transaction *txn;
    check(ink_begin(bank->db, INK_READ_COMMITTED, NULL, &txn, &error), &error);
    code = add(txn, rows, from, -1, value, &error);
    if (code == INK_OK) code = add(txn, rows, to, 1, value, &error);
    if (code == INK_OK) code = ink_commit(txn, INK_SYNC, &error); /* on disk when this returns */
    ink_transaction_free(txn); /* rolls back what was not committed */
  } while (code == INK_DEADLOCK || code == INK_LOCK_TIMEOUT);
  check(code, &error);
}

static void *work(void *context) {
  static uint32_t seeds = 0;
  uint32_t random = 2463534242u + 97 * __sync_fetch_and_add(&seeds, 1);
  ink_buffer value = {0};
  for (int i = 0; i < TRANSFERS; i++) {
    random ^= random << 13, random ^= random >> 17, random ^= random << 5;
    transfer(context, random % ACCOUNTS, (random >> 16) % ACCOUNTS, &value);
  }
  ink_buffer_free(&value);
  return NULL;
}

static void fill(const struct bank *bank) {
  const ink_tree *rows = ink_table_tree(bank->table, 0);
  ink_buffer value = {0};
  ink_transaction *txn;
  ink_error error;
  check(ink_begin(bank->db, INK_READ_COMMITTED, NULL, &txn, &error), &error);
  for (uint32_t n = 0; n < ACCOUNTS; n++) check(add(txn, rows, n, EACH, &value, &error), &error);
  check(ink_commit(txn, INK_SYNC, &error), &error);
  ink_transaction_free(txn);
  ink_buffer_free(&value);
}

/* All balances, as one snapshot has them. */
static int32_t sum(const struct bank *bank) {
  const ink_range all = {0};
  const ink_scan forward = {0};
  ink_transaction *txn;
  ink_cursor *cursor;
  ink_error error;
  ink_row found[16];
  size_t count;
  int32_t sum = 0, balance;
  check(ink_begin(bank->db, INK_SNAPSHOT, NULL, &txn, &error), &error);
  const ink_tree *rows = ink_table_tree(bank->table, 0);
  check(ink_cursor_open(txn, rows, &all, &forward, &cursor, &error), &error);
  do {
    check(ink_cursor_fetch(cursor, found, 16, &count, &error), &error);
    for (size_t i = 0; i < count; i++) {
      memcpy(&balance, found[i].value.data, sizeof balance);
      sum += balance;
    }
  } while (count > 0);
  ink_cursor_close(cursor);
  ink_transaction_free(txn);
  return sum;
}

static void open_bank(const char *directory, struct bank *bank) {
  ink_error error;
  check(ink_open(directory, NULL, 0, &bank->db, &error), &error);
  int code = ink_create_table(bank->db, INK_STR("accounts"), NULL, 0, &error);
  if (code != INK_ALREADY_EXISTS) check(code, &error);
  check(ink_table_open(bank->db, INK_STR("accounts"), &bank->table, &error), &error);
}

int main(int argc, char **argv) {
  struct bank bank;
  pthread_t threads[THREADS];
  ink_error error;
  if (argc != 2) return fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]), 2;
  open_bank(argv[1], &bank);
  fill(&bank);
  const int32_t before = sum(&bank);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &bank);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ink_table_close(bank.table);
  check(ink_close(bank.db, &error), &error);

  open_bank(argv[1], &bank);
  const int32_t after = sum(&bank);
  printf("%d transfers, the sum was %d and is %d\n", THREADS * TRANSFERS, (int)before, (int)after);
  ink_table_close(bank.table);
  check(ink_close(bank.db, &error), &error);
  return before == after ? 0 : 1;
}
