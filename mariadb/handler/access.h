/* SPDX-License-Identifier: GPL-2.0-only */
/* How a handler gets at its table now: as which session, in which transaction, with which locks.
   The parts of a handler (Scan, AutoIncrement) have it in common. */
#ifndef INKSTONE_ACCESS_H
#define INKSTONE_ACCESS_H

#include "handler/sorted_insert.h"
#include "server/session.h"
#include "table/share.h"

struct Access
{
  /** `table` is the handler's, which the server sets when it opens it. */
  explicit Access(TABLE *const &table)
      : table(table), share(nullptr), session(nullptr), lock(INK_LOCK_NONE), wait(INK_WAIT),
        writes(false)
  {
  }

  ink_transaction *transaction() const
  {
    return copying.get() ? copying.get() : statement_transaction();
  }
  /** Whose locks the statement's are: a copy is committed on the way. */
  ink_transaction *statement_transaction() const { return own ? own.get() : session->transaction.of(share->is_temporary()).get(); }
  THD *thd() const { return session->thd; }
  /** Rows of a discarded table are refused where one is asked for, as with InnoDB; its definition
      is not. 0: it is not discarded. */
  int refuse_discarded() const
  {
    if (!share->is_discarded())
      return 0;
    my_error(ER_TABLESPACE_DISCARDED, MYF(0), table->s->table_name.str);
    return HA_ERR_TABLESPACE_MISSING;
  }
  int failure(const ink_error &error) const { return handler_error(thd(), error); }

  TABLE *const &table;
  TableShare *share;
  Session *session;
  /** Of a sequence, whose numbers no rollback takes back: a transaction for each change. */
  OwnedTransaction own;
  /** Of a copy that the server fills (BulkInsert). */
  FillingTransaction copying;
  /** How rows are locked: enum ink_lock, enum ink_wait. */
  uint32_t lock, wait;
  /** Whether the statement has locked the table to change it. */
  bool writes;
};

#endif
