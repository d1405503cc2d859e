/* SPDX-License-Identifier: GPL-2.0-only */
/* A connection's transaction has two parts: one in the database that is kept, one in that of
   temporary tables. Each begins with the first statement that needs it. Statements, savepoints and
   the end are those of both; only the first is prepared, ordered and durable. */
#ifndef INKSTONE_TRANSACTION_H
#define INKSTONE_TRANSACTION_H

#include "server/owned.h"

/** One part, and the statement in it. */
class TransactionPart
{
public:
  ink_transaction *get() const { return held.get(); }
  bool has_begun() const { return held != nullptr; }
  bool runs_statement() const { return is_statement_running; }

  int begin(ink_database *in, uint32_t isolation, const ink_interrupt *interrupt, THD *thd);
  /** Begins the statement, unless it runs; locks are waited for so long. */
  int begin_statement(THD *thd, uint64_t wait_ms);
  /** 0 also if none runs. */
  int end_statement(THD *thd);
  int rollback_statement(THD *thd);
  int rollback_to_beginning(ink_error *error) { return ink_mark_rollback(get(), &beginning, error); }
  /** Gives it back: what was not committed is rolled back. */
  void end();
  /** Its handle, to be kept by the caller. */
  OwnedTransaction take() { return std::move(held); }

private:
  bool leave_statement();

  OwnedTransaction held;
  /** For savepoints from before it began. */
  ink_mark beginning;
  bool is_statement_running= false;
  /** How long it was told to wait for a lock, in milliseconds; UINT64_MAX: it was not told yet. */
  uint64_t told_wait_ms= UINT64_MAX;
};

/** The transaction of a connection. */
class TransactionParts
{
public:
  enum { KEPT, TEMPORARY, COUNT };

  TransactionPart &of(bool is_temporary) { return parts[is_temporary ? TEMPORARY : KEPT]; }
  TransactionPart &kept() { return parts[KEPT]; }
  TransactionPart &temporary() { return parts[TEMPORARY]; }
  bool has_begun() const { return parts[KEPT].has_begun() || parts[TEMPORARY].has_begun(); }

  int end_statement(THD *thd);
  int rollback_statement(THD *thd);
  void end();

  /** What the server keeps of a savepoint. */
  struct Savepoint
  {
    ink_mark marks[COUNT];
    bool had_begun[COUNT];
  };
  int set(Savepoint *savepoint, ink_error *error);
  int rollback_to(Savepoint *savepoint, ink_error *error);

private:
  TransactionPart parts[COUNT];
};

#endif
