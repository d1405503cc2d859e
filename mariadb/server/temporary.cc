/* SPDX-License-Identifier: GPL-2.0-only */
/* Making, finding and closing the database of temporary tables (server/temporary.h). */
#include "server/temporary.h"
#include "server/variables.h"
#include <algorithm>
#include <atomic>
#include <mutex>

static std::mutex making;
/* nullptr: there was no temporary table yet. */
static std::atomic<ink_database *> made(nullptr);

bool is_temporary_table(ink_slice name)
{
  static const char prefix[]= "/" tmp_file_prefix "-temptable-";
  const uchar *end= name.data + name.len;
  return std::search(name.data, end, prefix, prefix + sizeof prefix - 1) != end;
}

ink_database *database_of(ink_slice name)
{
  ink_database *temporary= is_temporary_table(name) ? made.load() : nullptr;
  return temporary ? temporary : database;
}

ink_database *temporary_database() { return made.load(); }

int make_temporary_database(THD *thd)
{
  if (made.load() || ink_is_read_only(database))
    return 0;
  std::lock_guard<std::mutex> hold(making);
  if (made.load())
    return 0;
  ink_error error;
  ink_database *opened= nullptr;
  if (open_temporary_database(&opened, &error))
    return handler_error(thd, error);
  made.store(opened);
  return 0;
}

void close_temporary_database()
{
  ink_error error;
  ink_database *closed= made.exchange(nullptr);
  if (closed && ink_close(closed, &error))
    sql_print_error("Inkstone: temporary tables: %s", error.message);
}
