/* SPDX-License-Identifier: GPL-2.0-only */
/* The two parts of a connection's transaction (server/transaction.h). */
#include "server/transaction.h"

int TransactionPart::begin(ink_database *in, uint32_t isolation, const ink_interrupt *interrupt, THD *thd)
{
  ink_error error;
  if (::begin(in, isolation, interrupt, &held, &error))
    return handler_error(thd, error);
  ink_transaction_set_tag(get(), thd_get_thread_id(thd));
  ink_transaction_set_owner(get(), thd);
  told_wait_ms= UINT64_MAX;
  is_statement_running= false;
  return ink_mark_set(get(), &beginning, &error) ? handler_error(thd, error) : 0;
}

/* Most statements want to wait as long as the one before. */
int TransactionPart::begin_statement(THD *thd, uint64_t wait_ms)
{
  ink_error error;
  if (is_statement_running)
    return 0;
  if (wait_ms != told_wait_ms && ink_set_lock_wait_timeout(get(), wait_ms, &error))
    return handler_error(thd, error);
  told_wait_ms= wait_ms;
  if (ink_statement_begin(get(), &error))
    return handler_error(thd, error);
  is_statement_running= true;
  return 0;
}

/* False: none runs. */
bool TransactionPart::leave_statement()
{
  const bool runs= held && is_statement_running;
  is_statement_running= false;
  return runs;
}

int TransactionPart::end_statement(THD *thd)
{
  ink_error error;
  return leave_statement() && ink_statement_end(get(), &error) ? handler_error(thd, error) : 0;
}

int TransactionPart::rollback_statement(THD *thd)
{
  ink_error error;
  if (!leave_statement())
    return 0;
  /* It ends then: an idle session keeps no snapshot of it. */
  if (!ink_statement_rollback(get(), &error) && !ink_statement_end(get(), &error))
    return 0;
  /* The whole transaction is gone, after a deadlock, or goes, if the statement could not be undone
     (a full disk): a COMMIT would find none. */
  thd->mark_transaction_to_rollback(true);
  return error.code == INK_TRANSACTION_STATE ? 0 : handler_error(thd, error);
}

void TransactionPart::end()
{
  held.reset();
  is_statement_running= false;
}

int TransactionParts::end_statement(THD *thd)
{
  int failed= 0;
  for (TransactionPart &part : parts)
    if (int not_ended= part.end_statement(thd))
      failed= not_ended;
  return failed;
}

int TransactionParts::rollback_statement(THD *thd)
{
  int failed= 0;
  for (TransactionPart &part : parts)
    if (int not_undone= part.rollback_statement(thd))
      failed= not_undone;
  return failed;
}

void TransactionParts::end()
{
  for (TransactionPart &part : parts)
    part.end();
}

int TransactionParts::set(Savepoint *savepoint, ink_error *error)
{
  for (int i= 0; i < COUNT; i++)
  {
    savepoint->had_begun[i]= parts[i].has_begun();
    if (parts[i].has_begun() && ink_mark_set(parts[i].get(), &savepoint->marks[i], error))
      return 1;
  }
  return 0;
}

int TransactionParts::rollback_to(Savepoint *savepoint, ink_error *error)
{
  for (int i= 0; i < COUNT; i++)
    if (savepoint->had_begun[i] ? ink_mark_rollback(parts[i].get(), &savepoint->marks[i], error)
                                : parts[i].has_begun() && parts[i].rollback_to_beginning(error))
      return 1;
  return 0;
}
