/* SPDX-License-Identifier: GPL-2.0-only */
/* How errors of the engine become errors of the server. */
#include "server/engine.h"
#include "server/session.h"
#include <atomic>

/* What the session's user should know, and the server's number would not tell. */
static int other_error(THD *thd, const ink_error &error)
{
  if (thd)
    if (Session *session= session_of(thd))
      strmake(session->message, error.message, sizeof session->message - 1);
  return HA_ERR_INKSTONE;
}

/* Tells the session what the server's number would not. In strict mode a warning of a statement
   that changes rows would become its error, before the server has given the number that programs
   look for. */
static void warn(THD *thd, const ink_error &error, int number)
{
  if (!thd)
    return;
  Abort_on_warning_instant_set of_statement(thd, false);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG,
                      ER_THD(thd, ER_GET_ERRMSG), number, error.message, "INKSTONE");
}

/* What is wrong with files goes to the error log, too, and to the session as a warning: where a
   table is being opened the server prints a number only. */
static int file_error(THD *thd, const ink_error &error, int number)
{
  sql_print_error("Inkstone: %s", error.message);
  warn(thd, error, number);
  other_error(thd, error);
  return number;
}

/* The engine has stopped: each statement fails so from then on, and the error log gets it once. */
static void tell_once(const ink_error &error)
{
  static std::atomic<bool> told(false);
  if (!told.exchange(true))
    sql_print_error("Inkstone: %s", error.message);
}

int handler_error(THD *thd, const ink_error &error)
{
  switch (error.code)
  {
  case INK_OK:
    return 0;
  case INK_DUPLICATE_KEY:
    return HA_ERR_FOUND_DUPP_KEY;
  case INK_WRITE_CONFLICT:
    return HA_ERR_RECORD_CHANGED;
  case INK_DEADLOCK:
    /* The victim is rolled back already. */
    if (thd)
      thd->mark_transaction_to_rollback(true);
    return HA_ERR_LOCK_DEADLOCK;
  case INK_LOCK_TIMEOUT:
  case INK_LOCK_NOT_AVAILABLE:
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  case INK_INTERRUPTED:
    return HA_ERR_ABORTED_BY_USER;
  case INK_DISK_FULL:
    /* The server says that the table is full: which file could not grow, the undo file say, is a
       warning. */
    warn(thd, error, HA_ERR_RECORD_FILE_FULL);
    return HA_ERR_RECORD_FILE_FULL;
  case INK_VALUE_TOO_LONG:
    return HA_ERR_TO_BIG_ROW;
  case INK_KEY_TOO_LONG:
    /* Only tables that an earlier version made do not cut long keys. */
    return HA_ERR_TABLE_NEEDS_UPGRADE;
  case INK_TABLE_CHANGED:
    return HA_ERR_TABLE_DEF_CHANGED;
  case INK_NOT_FOUND:
    return HA_ERR_NO_SUCH_TABLE;
  case INK_ALREADY_EXISTS:
    return HA_ERR_TABLE_EXIST;
  case INK_CORRUPT:
    return file_error(thd, error, HA_ERR_CRASHED);
  case INK_NOT_A_DATABASE:
    /* The table's file is missing, or another's is there. */
    return file_error(thd, error, HA_ERR_NO_SUCH_TABLE);
  case INK_IO:
    return file_error(thd, error, HA_ERR_INKSTONE);
  case INK_READ_ONLY:
    return HA_ERR_TABLE_READONLY;
  case INK_TOO_MANY_TRANSACTIONS:
    return HA_ERR_TOO_MANY_CONCURRENT_TRXS;
  case INK_POISONED:
    tell_once(error);
    return other_error(thd, error);
  case INK_PANIC:
    sql_print_error("Inkstone: %s", error.message);
    return other_error(thd, error);
  default:
    return other_error(thd, error);
  }
}

TableName::TableName(const char *path) : start(path), length(strlen(path))
{
  int slashes= 0;
  for (const char *at= path + length; at > path; at--)
    if (at[-1] == FN_LIBCHAR && ++slashes == 2)
    {
      start= at;
      break;
    }
  length-= start - path;
}
