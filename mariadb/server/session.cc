/* SPDX-License-Identifier: GPL-2.0-only */
/* What the server does with a connection's transaction. */
#include "server/session.h"
#include "server/change_times.h"
#include "server/partition_path.h"
#include "server/variables.h"
#include "server/xid.h"
#include "sql_parse.h"
#include <atomic>
#include <mutex>
#include <new>

Session::Session(THD *connection)
    : thd(connection), interrupt(ink_interrupt_new()),
      begun_at(INK_REPEATABLE_READ), tables_in_use(0), auto_increment_rows(0), altered{0, {}},
      updates_duplicates(false), replaces_duplicates(false), duplicate_index(MAX_KEY),
      described_by(0), adds_foreign_keys(0), ordered(false), prepared(Prepared::not_yet), begun(0)
{
  message[0]= 0;
}

Session *session_of(THD *thd)
{
  Session *session= static_cast<Session *>(thd_get_ha_data(thd, inkstone_hton));
  if (session)
    return session;
  std::unique_ptr<Session> made(new (std::nothrow) Session(thd));
  if (made)
    thd_set_ha_data(thd, inkstone_hton, made.get());
  /* close_connection (plugin.cc) takes it back. */
  return made.release();
}

bool AlteredCounters::has_handed_over(THD *thd, const std::string &table) const
{
  if (query != thd->query_id)
    return false;
  for (const Counter &old : counters)
    if (old.handed_over && old.partition == PartitionPath(table).partition)
      return true;
  return false;
}

/* The level that the server asks for. */
static uint32_t isolation_of(THD *thd)
{
  switch (thd_tx_isolation(thd))
  {
  case ISO_READ_UNCOMMITTED:
    return INK_READ_UNCOMMITTED;
  case ISO_READ_COMMITTED:
    return INK_READ_COMMITTED;
  case ISO_SERIALIZABLE:
    /* Repeatable read with all reads locking, as InnoDB does it. Transactions that lock whatever
       they read need none of snapshot isolation's errors. */
    return INK_REPEATABLE_READ;
  default:
    return snapshot_isolation(thd) ? INK_SNAPSHOT : INK_REPEATABLE_READ;
  }
}

/* A transaction keeps the level at which it began, also when a variable changes. */
bool locks_gaps(THD *thd)
{
  const Session *session= static_cast<Session *>(thd_get_ha_data(thd, inkstone_hton));
  const bool begun= session && session->transaction.has_begun();
  return (begun ? session->begun_at : isolation_of(thd)) == INK_REPEATABLE_READ;
}

/* A kill of an earlier statement is over; one of this statement may have come already. */
void Session::forget_old_kill()
{
  ink_interrupt_clear(interrupt.get());
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    ink_interrupt_raise(interrupt.get());
}

int Session::begin_if_none(bool is_temporary)
{
  TransactionPart &part= transaction.of(is_temporary);
  if (part.has_begun())
    return 0;
  if (!transaction.has_begun())
  {
    begun_at= isolation_of(thd);
    begun= my_time(0);
    has_tried= false;
    ordered= false;
    prepared= Prepared::not_yet;
  }
  /* Rows of temporary tables are changed by their session alone: it needs no snapshot of them that
     would keep old versions of all sessions' rows, and no locks of gaps. */
  return is_temporary ? part.begin(temporary_database(), INK_READ_COMMITTED, interrupt.get(), thd)
                      : part.begin(database, begun_at, interrupt.get(), thd);
}

int Session::begin_statement(bool is_temporary)
{
  if (int failed= begin_if_none(is_temporary))
    return failed;
  TransactionPart &part= transaction.of(is_temporary);
  if (!part.runs_statement())
    forget_old_kill();
  if (int failed= part.begin_statement(thd, lock_wait_timeout_ms(thd)))
    return failed;
  trans_register_ha(thd, false, inkstone_hton, 0);
  if (thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    trans_register_ha(thd, true, inkstone_hton, 0);
  return 0;
}

/* The server's statement goes on if there is no memory for it: a time in a list is not worth an
   error. */
void Session::note_change(const std::string &table)
{
  has_tried= true;
  try
  {
    changed.insert(table);
  }
  catch (const std::bad_alloc &)
  {
  }
}

void Session::end()
{
  changed.clear();
  transaction.end();
  auto_increment_rows= 0;
  ordered= false;
  prepared= Prepared::not_yet;
}

/* What DDL fills by copying is durable when it commits, whatever flush_log_at_trx_commit says: the
   server syncs its own log of such a statement next, and puts the copy in its place after a
   crash. */
uint32_t Session::durability() const
{
  const bool is_ddl= sql_command_flags[thd_sql_command(thd)] & CF_AUTO_COMMIT_TRANS;
  return is_ddl ? static_cast<uint32_t>(INK_SYNC) : flush_log_at_commit();
}

/* Called one after the other for all commits, with the binary log's latch held: takes the commit's
   place in the log, and waits for no disk, nor for another transaction. */
void Session::commit_ordered()
{
  if (!transaction.kept().has_begun())
    return;
  ordered_error.code= INK_OK;
  ink_commit_ordered(transaction.kept().get(), durability(), &ordered_error);
  ordered= true;
}

int Session::commit_kept()
{
  ink_error error;
  const bool by_server= ordered;
  /* After a crash the server commits what it has prepared itself and finds in the binary log. What
     XA PREPARE has prepared it leaves as it is found, to be committed or rolled back by hand. */
  const bool is_found_by_server= by_server && prepared == Prepared::by_server;
  const uint32_t wait_for= is_found_by_server ? static_cast<uint32_t>(INK_LAZY) : durability();
  if (!by_server)
    commit_ordered();
  if (ordered_error.code != INK_OK)
    return handler_error(thd, ordered_error);
  /* Its place is taken: on a replica without a binary log those whose turn comes next go on, and
     share the sync. Where the server orders commits it has told them itself. */
  if (!by_server)
    thd_wakeup_subsequent_commits(thd, 0);
  if (ink_commit_wait(transaction.kept().get(), wait_for, &error))
    return handler_error(thd, error);
  if (!changed.empty())
    change_times::note(changed, begun);
  return 0;
}

/* Temporary tables last: what could not be committed of the others is not committed of them. */
int Session::commit()
{
  if (!transaction.has_begun())
    return 0;
  ink_error error;
  int failed= transaction.kept().has_begun() ? commit_kept() : 0;
  if (!failed && transaction.temporary().has_begun() &&
      ink_commit(transaction.temporary().get(), INK_LAZY, &error))
    failed= handler_error(thd, error);
  end();
  return failed;
}

/* Transactions that are left as they are until the database is closed. */
static std::mutex left_mutex;
static std::vector<OwnedTransaction> left;

/* The connection's transaction is not rolled back: the next start does that. False: it must be, as
   there is no memory to keep it. */
bool Session::leave_to_next_start()
{
  const std::lock_guard<std::mutex> guard(left_mutex);
  try
  {
    left.reserve(left.size() + TransactionParts::COUNT);
  }
  catch (const std::bad_alloc &)
  {
    return false;
  }
  for (const bool is_temporary : {false, true})
  {
    TransactionPart &part= transaction.of(is_temporary);
    if (!part.has_begun())
      continue;
    /* The connection may end before it. */
    ink_transaction_set_owner(part.get(), nullptr);
    left.push_back(part.take());
  }
  return true;
}

void give_back_left_transactions()
{
  const std::lock_guard<std::mutex> guard(left_mutex);
  left.clear();
}

int Session::rollback()
{
  if (!transaction.has_begun())
    return 0;
  if (leaves_rollbacks() && prepared == Prepared::not_yet && leave_to_next_start())
  {
    end();
    return 0;
  }
  ink_error error;
  int failed= 0;
  for (const bool is_temporary : {false, true})
  {
    const TransactionPart &part= transaction.of(is_temporary);
    if (part.has_begun() && ink_rollback(part.get(), &error))
      failed= handler_error(thd, error);
  }
  end();
  return failed;
}

int Session::end_statement()
{
  auto_increment_rows= 0;
  return transaction.end_statement(thd);
}

int Session::rollback_statement()
{
  auto_increment_rows= 0;
  return transaction.rollback_statement(thd);
}

/* A prepared transaction of the server's that the binary log does not tell of is rolled back after
   a crash, by this version of the server: it looks for it in no other place. */
static void tell_of_no_binary_log()
{
  static std::atomic<bool> told(false);
  if (!told.exchange(true))
    sql_print_warning("Inkstone: a transaction over several engines is committed without the binary"
                      " log: after a crash this version of MariaDB rolls back what an engine has"
                      " not made durable by itself, also if the client was told of the commit. Set"
                      " log_bin (on a replica also log_slave_updates)");
}

static bool has_binary_log(THD *thd) { return opt_bin_log && thd_test_options(thd, OPTION_BIN_LOG); }

int Session::prepare(const XID &xid)
{
  /* What has only read has nothing to keep, and nothing can be kept. Nor is anything of temporary
     tables: their part ends with the commit. */
  if (!transaction.kept().has_begun() || ink_is_read_only(database))
    return 0;
  ink_error error;
  XidBytes bytes(xid);
  const bool is_by_server= XID(xid).get_my_xid() != 0;
  /* Workers of a replica commit in the primary's order. The binary log sees to that, and for a
     transaction of one engine the server does. Of several engines, without the binary log, it
     commits whichever is prepared first: then the row of a later one would be overwritten. */
  if (is_by_server && !has_binary_log(thd) && thd->wait_for_prior_commit())
    return HA_ERR_INKSTONE;
  if (ink_prepare(transaction.kept().get(), bytes.slice(), durability(), &error))
    return handler_error(thd, error);
  prepared= is_by_server ? Prepared::by_server : Prepared::by_user;
  if (is_by_server && !has_binary_log(thd))
    tell_of_no_binary_log();
  /* As with InnoDB: nothing is read any more; what has changed nothing keeps its locks all the
     same. Where the server prepares by itself it commits soon, and what was read must not be
     overwritten by what the binary log has before that. */
  if (thd_sql_command(thd) == SQLCOM_XA_PREPARE && thd_tx_isolation(thd) != ISO_SERIALIZABLE &&
      has_tried && ink_release_shared_locks(transaction.kept().get(), &error))
    return handler_error(thd, error);
  return 0;
}

int Session::take_snapshot()
{
  ink_error error;
  if (int failed= begin_if_none(false))
    return failed;
  return ink_take_snapshot(transaction.kept().get(), &error) ? handler_error(thd, error) : 0;
}
