/* SPDX-License-Identifier: GPL-2.0-only */
/* When tables were changed last (server/change_times.h). */
#include "server/change_times.h"
#include <mutex>
#include <new>
#include <unordered_map>

static std::mutex mutex;
static std::unordered_map<std::string, time_t> times;

void change_times::note(const std::set<std::string> &tables, time_t begun)
{
  std::lock_guard<std::mutex> latch(mutex);
  try
  {
    for (const std::string &table : tables)
      times[table]= begun;
  }
  catch (const std::bad_alloc &)
  {
    /* The time stays what it was. */
  }
}

time_t change_times::of(const std::string &table)
{
  std::lock_guard<std::mutex> latch(mutex);
  const auto found= times.find(table);
  return found == times.end() ? 0 : found->second;
}

void change_times::forget(const std::string &table)
{
  std::lock_guard<std::mutex> latch(mutex);
  times.erase(table);
}

void change_times::rename(const std::string &from, const std::string &to)
{
  std::lock_guard<std::mutex> latch(mutex);
  const auto found= times.find(from);
  if (found == times.end())
    return;
  const time_t time= found->second;
  times.erase(found);
  try
  {
    times[to]= time;
  }
  catch (const std::bad_alloc &)
  {
  }
}
