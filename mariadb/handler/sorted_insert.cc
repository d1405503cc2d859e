/* SPDX-License-Identifier: GPL-2.0-only */
/* Sorted rows on their way into a tree (handler/sorted_insert.h). */
#include "handler/sorted_insert.h"

/** As much is inserted between two commits. */
static const uint64 UNCOMMITTED_BYTES_MAX= 8 << 20;
/** Rows that are inserted at a time, enough for a bulk. Then the statement can be killed. */
static const size_t ROWS_AT_A_TIME= 4096;

int FillingTransaction::begin(const Session &session, ink_database *in)
{
  ink_error error;
  if (held)
    return 0;
  uncommitted= 0;
  return ::begin(in, INK_READ_COMMITTED, session.interrupt.get(), &held, &error) ? handler_error(session.thd, error) : 0;
}

int FillingTransaction::count(THD *thd, uint64 bytes)
{
  uncommitted+= bytes;
  return uncommitted < UNCOMMITTED_BYTES_MAX ? 0 : commit(thd);
}

/* The log's order makes it durable before the commit that shows what was filled. */
int FillingTransaction::commit(THD *thd)
{
  ink_error error;
  if (!held)
    return 0;
  const int failed= ink_commit(held.get(), INK_LAZY, &error) ? handler_error(thd, error) : 0;
  held.reset();
  return failed;
}

int SortedInsert::next(ink_transaction *transaction)
{
  ink_error error;
  inserted= ink_inserted();
  if (thd_kill_level(progress->thd) != THD_IS_NOT_KILLED)
    return HA_ERR_ABORTED_BY_USER;
  if (ink_sorter_insert(sorter, transaction, tree, ROWS_AT_A_TIME, &inserted, &error))
    return handler_error(progress->thd, error);
  ended= !inserted.rows;
  progress->done+= inserted.rows;
  thd_progress_report(progress->thd, progress->done, progress->total);
  return 0;
}
