/* SPDX-License-Identifier: GPL-2.0-only */
/* Lock waits and deadlocks, told to the server (server/waits.h). */
#include "server/waits.h"
#include "server/variables.h"
#include <atomic>

/* Exported by the server for engines, and declared in none of its headers. */
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD waiter, MYSQL_THD blocker);
extern "C" size_t thd_query_safe(MYSQL_THD thd, char *text, size_t room);
extern "C" int thd_deadlock_victim_preference(const MYSQL_THD first, const MYSQL_THD second);

/* The server kills the blocker, in a thread of its own, if that is a worker whose turn to commit
   comes after the waiter's: it rolls back and is tried again. And it notes that the waiter waited,
   for the replicas of this server. The engine keeps the blocker's transaction, and so its THD, for
   the time of the call. */
static void about_to_wait(void *waiter, void *blocker)
{
  thd_rpl_deadlock_check(static_cast<THD *>(waiter), static_cast<THD *>(blocker));
}

static bool wants_waits(void *waiter)
{
  return waiter && thd_need_wait_reports(static_cast<THD *>(waiter));
}

/* The later one in the primary's order; else one that can be rolled back as a whole. */
static int compare_victims(void *first, void *second)
{
  return thd_deadlock_victim_preference(static_cast<THD *>(first), static_cast<THD *>(second));
}

/* Nothing if the server's latch of the text is taken: this one does not wait. */
static size_t statement_of(void *owner, char *text, size_t room)
{
  return thd_query_safe(static_cast<THD *>(owner), text, room);
}

static std::atomic<time_t> latest_deadlock(0);

time_t latest_deadlock_time()
{
  return latest_deadlock.load(std::memory_order_relaxed);
}

/* Line by line: the server cuts what it writes at a time. */
static void deadlock_found(ink_slice account)
{
  latest_deadlock.store(my_time(0), std::memory_order_relaxed);
  if (!prints_all_deadlocks())
    return;
  const char *text= reinterpret_cast<const char *>(account.data), *const end= text + account.len;
  while (text < end)
  {
    const void *found= memchr(text, '\n', end - text);
    const char *line_end= found ? static_cast<const char *>(found) : end;
    sql_print_information("Inkstone: %.*s", static_cast<int>(MY_MIN(line_end - text, 900)), text);
    text= line_end + 1;
  }
}

void report_lock_waits()
{
  ink_set_lock_wait_hooks(database, wants_waits, about_to_wait, compare_victims, statement_of,
                          deadlock_found);
}
