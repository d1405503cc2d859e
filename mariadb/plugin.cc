/* SPDX-License-Identifier: GPL-2.0-only */
/* What the server calls for the engine as a whole: transactions, two-phase commit, start and
   stop. */
#include "ddl/alter.h"
#include "ddl/page_options.h"
#include "ddl/tables.h"
#include "handler/ha_inkstone.h"
#include "server/information_schema.h"
#include "ddl/partitions.h"
#include "server/status.h"
#include "server/variables.h"
#include "server/waits.h"
#include "server/xid.h"
#include "table/foreign_key.h"

ink_database *database= nullptr;
handlerton *inkstone_hton= nullptr;
/* When the engine was started. */
static time_t opened= 0;

static handler *create_handler(handlerton *hton, TABLE_SHARE *table, MEM_ROOT *mem_root)
{
  return new (mem_root) ha_inkstone(hton, table);
}

static Session *existing_session(THD *thd)
{
  return static_cast<Session *>(thd_get_ha_data(thd, inkstone_hton));
}

/* Whether a commit or rollback is the transaction's, not only the statement's. */
static bool ends_transaction(THD *thd, bool all)
{
  return all || !thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

static int close_connection(handlerton *, THD *thd)
{
  /* In this order: a kill of this connection looks for its session under the server's latch, which
     setting takes. */
  const std::unique_ptr<Session> session(existing_session(thd));
  thd_set_ha_data(thd, inkstone_hton, nullptr);
  return 0;
}

static void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Session *session= existing_session(thd))
    ink_interrupt_raise(session->interrupt.get());
}

static int commit(handlerton *, THD *thd, bool all)
{
  Session *session= existing_session(thd);
  if (!session)
    return 0;
  return ends_transaction(thd, all) ? session->commit() : session->end_statement();
}

/* The transaction is rolled back that a statement was in: a client that hears only that the
   statement was killed would go on with it. The server looks for a kill before it tells of another
   error, and the kill may come at any time. */
static void tell_of_rollback(THD *thd)
{
  Diagnostics_area *told= thd->get_stmt_da();
  if (!thd->transaction_rollback_request || !told->is_error() ||
      (told->sql_errno() != ER_QUERY_INTERRUPTED && told->sql_errno() != ER_STATEMENT_TIMEOUT))
    return;
  told->reset_diagnostics_area();
  my_error(ER_LOCK_DEADLOCK, MYF(0));
}

static int rollback(handlerton *, THD *thd, bool all)
{
  Session *session= existing_session(thd);
  if (!session)
    return 0;
  if (all)
    tell_of_rollback(thd);
  return ends_transaction(thd, all) ? session->rollback() : session->rollback_statement();
}

static int prepare(handlerton *, THD *thd, bool all)
{
  Session *session= existing_session(thd);
  if (!session)
    return 0;
  if (!ends_transaction(thd, all))
    return session->end_statement();
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  return session->prepare(xid);
}

static void commit_ordered(handlerton *, THD *thd, bool all)
{
  if (ends_transaction(thd, all))
    existing_session(thd)->commit_ordered();
}

/* The server wants to forget a binary log: what it would need to repair must be durable here. */
static void commit_checkpoint_request(void *cookie)
{
  ink_error error;
  if (ink_flush_log(database, INK_SYNC, &error))
  {
    sql_print_error("Inkstone: %s", error.message);
    return;
  }
  commit_checkpoint_notify_ha(cookie);
}

struct FoundXids
{
  XID *list;
  uint room, count;
};

static bool add_xid(void *context, ink_slice bytes)
{
  FoundXids *found= static_cast<FoundXids *>(context);
  if (found->count < found->room && XidBytes::read(bytes, &found->list[found->count]))
    found->count++;
  return found->count < found->room;
}

static int recover(handlerton *, XID *list, uint room)
{
  ink_error error;
  FoundXids found= {list, room, 0};
  /* They stay as they are: they can be neither committed nor rolled back. */
  if (ink_is_read_only(database))
    return 0;
  if (room && ink_prepared(database, add_xid, &found, &error))
    sql_print_error("Inkstone: %s", error.message);
  return static_cast<int>(found.count);
}

/* X/Open's numbers, which the server's headers do not have. */
static const int XAER_NOTA= -4, XAER_RMERR= -3;

static int xa_result(int failed, const ink_error &error)
{
  if (!failed)
    return 0;
  if (error.code == INK_NOT_FOUND)
    return XAER_NOTA;
  sql_print_error("Inkstone: %s", error.message);
  return XAER_RMERR;
}

static bool take_format(void *context, ink_slice prepared)
{
  return !static_cast<XidBytes *>(context)->take_format_of(prepared);
}

/* The server and InnoDB tell XIDs apart by their two parts alone: the format may be another than
   XA START had. */
static int end_by_xid(int (*end)(const ink_database *, ink_slice, ink_error *), const XID &xid)
{
  ink_error error;
  XidBytes bytes(xid);
  int failed= end(database, bytes.slice(), &error);
  if (failed && error.code == INK_NOT_FOUND)
  {
    failed= ink_prepared(database, take_format, &bytes, &error);
    if (!failed)
      failed= end(database, bytes.slice(), &error);
  }
  return xa_result(failed, error);
}

static int commit_by_xid(handlerton *, XID *xid)
{
  return end_by_xid(ink_commit_by_xid, *xid);
}

static int rollback_by_xid(handlerton *, XID *xid)
{
  return end_by_xid(ink_rollback_by_xid, *xid);
}

/* The server keeps a mark for each savepoint, in memory of its own. */
static int savepoint_set(handlerton *, THD *thd, void *memory)
{
  ink_error error;
  Session *session= existing_session(thd);
  return session->transaction.set(static_cast<TransactionParts::Savepoint *>(memory), &error)
             ? handler_error(thd, error)
             : 0;
}

static int savepoint_rollback(handlerton *, THD *thd, void *memory)
{
  ink_error error;
  Session *session= existing_session(thd);
  return session->transaction.rollback_to(static_cast<TransactionParts::Savepoint *>(memory), &error)
             ? handler_error(thd, error)
             : 0;
}

/* A mark that is never rolled back to costs nothing. */
static int savepoint_release(handlerton *, THD *, void *)
{
  return 0;
}

static int start_consistent_snapshot(handlerton *hton, THD *thd)
{
  Session *session= session_of(thd);
  if (!session)
    return HA_ERR_OUT_OF_MEM;
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                 "Inkstone: WITH CONSISTENT SNAPSHOT was ignored because this phrase can only be"
                 " used with REPEATABLE READ isolation level.");
  else if (int failed= session->take_snapshot())
    return failed;
  trans_register_ha(thd, true, hton, 0);
  return 0;
}

static bool flush_logs(handlerton *)
{
  ink_error error;
  if (!ink_flush_log(database, INK_SYNC, &error))
    return false;
  sql_print_error("Inkstone: %s", error.message);
  return true;
}

/* A time of day of the server's. */
static std::string shown(time_t time)
{
  struct tm parts;
  char text[32];
  localtime_r(&time, &parts);
  return std::string(text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

/* When the account was given, since when it counts, and when there was a deadlock: the library
   knows no time of day. */
static std::string status_head()
{
  const time_t now= my_time(0), deadlock= latest_deadlock_time();
  std::string head= shown(now) + " INKSTONE STATUS\nCounters since " + shown(opened) + ", " +
                    std::to_string(static_cast<long long>(now - opened)) + " seconds ago\n";
  if (deadlock)
    head+= "Latest deadlock at " + shown(deadlock) + "\n";
  const std::string refused= latest_foreign_key_error();
  return refused.empty() ? head : head + "Latest foreign key error at " + refused + "\n";
}

static bool print_status(THD *thd, stat_print_fn *print, ink_slice text)
{
  try
  {
    const std::string whole= status_head() + text_of(text);
    return print(thd, STRING_WITH_LEN("INKSTONE"), "", 0, whole.data(), whole.size());
  }
  catch (const std::bad_alloc &)
  {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
    return true;
  }
}

static bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type kind)
{
  if (kind != HA_ENGINE_STATUS)
    return false;
  ink_error error;
  OwnedBytes text;
  if (!ink_status_text(database, text.to_fill(), &error))
    return print_status(thd, print, text.slice());
  my_error(ER_GET_ERRMSG, MYF(0), HA_ERR_INKSTONE, error.message, "INKSTONE");
  return true;
}

static int drop_table_of(handlerton *, const char *path)
{
  int failed= drop_table(path);
  try
  {
    return failed == ENOENT ? drop_whole(current_thd, path) : failed;
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
}

/* Names what recovery did, and files that were removed or set aside. */
static void report_opening()
{
  ink_error error;
  OwnedBytes text;
  if (!ink_open_report(database, text.to_fill(), &error))
    sql_print_information("Inkstone: %.*s", static_cast<int>(text.slice().len),
                          reinterpret_cast<const char *>(text.slice().data));
}

/* What recovery has left to the background is done. */
static void report_recovered(ink_slice text)
{
  sql_print_information("Inkstone: recovery: %.*s", static_cast<int>(text.len),
                        reinterpret_cast<const char *>(text.data));
}

static int initialise(void *plugin)
{
  ink_error error;
  inkstone_hton= static_cast<handlerton *>(plugin);
  handlerton *hton= inkstone_hton;
  if (open_database(&database, &error))
  {
    sql_print_error("Inkstone: %s", error.message);
    database= nullptr;
    return 1;
  }
  opened= my_time(0);
  report_opening();
  ink_tell_when_recovered(database, report_recovered);
  report_lock_waits();
  hton->db_type= DB_TYPE_AUTOASSIGN;
  hton->flags= HTON_SUPPORTS_FOREIGN_KEYS | HTON_SUPPORTS_EXTENDED_KEYS | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE |
               HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE;
  hton->table_options= inkstone_table_options;
  hton->savepoint_offset= sizeof(TransactionParts::Savepoint);
  hton->create= create_handler;
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->commit= commit;
  hton->rollback= rollback;
  hton->prepare= prepare;
  hton->commit_ordered= commit_ordered;
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->recover= recover;
  hton->commit_by_xid= commit_by_xid;
  hton->rollback_by_xid= rollback_by_xid;
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_rollback;
  hton->savepoint_release= savepoint_release;
  hton->start_consistent_snapshot= start_consistent_snapshot;
  hton->flush_logs= flush_logs;
  hton->show_status= show_status;
  hton->drop_table= drop_table_of;
  hton->drop_database= drop_database;
  hton->check_version= check_version;
  hton->signal_ddl_recovery_done= end_ddl_recovery;
  if (ink_is_read_only(database))
    return 0;
  begin_ddl_recovery();
  if (finish_interrupted_ddl())
    sql_print_error("Inkstone: temporary tables of the last run could not be removed");
  return 0;
}

static int shut_down(void *)
{
  ink_error error;
  if (database && ink_close_as(database, shutdown_mode(), &error))
    sql_print_error("Inkstone: %s", error.message);
  database= nullptr;
  close_temporary_database();
  give_back_left_transactions();
  return 0;
}

static struct st_mysql_storage_engine inkstone_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(inkstone)
{
  MYSQL_STORAGE_ENGINE_PLUGIN, &inkstone_engine, "INKSTONE", "Inkstone's authors",
      "Crash-safe transactions with row locks, little log and no torn pages", PLUGIN_LICENSE_GPL,
      initialise, shut_down, 0x0001, inkstone_status, inkstone_variables, "0.1",
      MariaDB_PLUGIN_MATURITY_EXPERIMENTAL
},
    INKSTONE_TABLE_PLUGIN("INKSTONE_TRX", "Transactions of Inkstone", initialise_trx_table),
    INKSTONE_TABLE_PLUGIN("INKSTONE_LOCKS", "Row and range locks of Inkstone, held and waited for", initialise_locks_table),
    INKSTONE_TABLE_PLUGIN("INKSTONE_LOCK_WAITS", "Waiting transactions of Inkstone and their blockers",
                          initialise_lock_waits_table),
    INKSTONE_TABLE_PLUGIN("INKSTONE_DURATIONS", "How long I/O and waits of Inkstone took",
                          initialise_durations_table),
    INKSTONE_TABLE_PLUGIN("INKSTONE_DURATION_HISTOGRAM", "How many I/O operations and waits of Inkstone took how long",
                          initialise_histogram_table)
maria_declare_plugin_end;
