/* SPDX-License-Identifier: GPL-2.0-only */
#include "status.h"
#include <mutex>
#include <string>
#include <vector>

/* InnoDB's name, and the sum of metrics (less those after a minus) that it stands for. As there, syncs are those
   of data and log, writes those of data alone, and what is written to the log is counted without padding. */
static const struct Counterpart
{
  const char *name;
  const char *plus[3], *minus;
} COUNTERPARTS[]= {
    {"buffer_pool_pages_total", {"buffer_pool_frames"}, nullptr},
    {"buffer_pool_pages_free", {"buffer_pool_free"}, nullptr},
    {"buffer_pool_pages_dirty", {"buffer_pool_dirty"}, nullptr},
    {"buffer_pool_pages_data", {"buffer_pool_frames"}, "buffer_pool_free"},
    {"buffer_pool_pages_flushed", {"pages_written"}, nullptr},
    {"buffer_pool_read_requests", {"buffer_read_requests"}, nullptr},
    {"buffer_pool_reads", {"pages_read"}, nullptr},
    {"buffer_pool_wait_free", {"buffer_frame_waits"}, nullptr},
    {"checkpoint_age", {"checkpoint_age_bytes"}, nullptr},
    {"data_fsyncs", {"data_syncs", "doublewrite_syncs", "log_syncs"}, nullptr},
    {"data_reads", {"pages_read"}, nullptr},
    {"data_writes", {"data_write_calls", "doublewrite_write_calls"}, nullptr},
    {"data_written", {"page_bytes_written", "doublewrite_bytes"}, nullptr},
    {"dblwr_pages_written", {"doublewrite_pages"}, nullptr},
    {"dblwr_writes", {"doublewrite_write_calls"}, nullptr},
    {"log_write_requests", {"log_mini_transactions"}, nullptr},
    {"log_writes", {"log_write_calls"}, nullptr},
    {"lsn_flushed", {"lsn_durable"}, nullptr},
    {"lsn_last_checkpoint", {"lsn_current"}, "checkpoint_age_bytes"},
    {"os_log_fsyncs", {"log_syncs"}, nullptr},
    {"os_log_written", {"log_bytes"}, nullptr},
    {"row_lock_waits", {"lock_waits"}, nullptr},
};

/* Names and values live as long as the library; the server reads them while it shows them. */
static std::mutex mutex;
static std::vector<std::string> names;
static std::vector<ulonglong> values;
static std::vector<st_mysql_show_var> shown;

static bool add_metric(void *, const ink_metric *metric)
{
  names.emplace_back(reinterpret_cast<const char *>(metric->name.data), metric->name.len);
  values.push_back(metric->value);
  return true;
}

static ulonglong metric(const char *name)
{
  for (size_t i= 0; name && i < names.size(); i++)
    if (names[i] == name)
      return values[i];
  return 0;
}

static int show_all(MYSQL_THD, struct st_mysql_show_var *variable, void *, struct system_status_var *,
                    enum enum_var_type)
{
  std::lock_guard<std::mutex> latch(mutex);
  names.clear();
  values.clear();
  shown.clear();
  if (database)
    ink_metrics(database, add_metric, nullptr);
  for (const Counterpart &other : COUNTERPARTS)
  {
    ulonglong sum= 0;
    for (const char *name : other.plus)
      sum+= metric(name);
    names.push_back(other.name);
    values.push_back(sum - metric(other.minus));
  }
  for (size_t i= 0; i < names.size(); i++)
    shown.push_back({names[i].c_str(), reinterpret_cast<char *>(&values[i]), SHOW_ULONGLONG});
  shown.push_back({nullptr, nullptr, SHOW_UNDEF});
  variable->type= SHOW_ARRAY;
  variable->value= reinterpret_cast<char *>(shown.data());
  return 0;
}

struct st_mysql_show_var inkstone_status[]= {
    {"Inkstone", reinterpret_cast<char *>(&show_all), SHOW_FUNC}, {nullptr, nullptr, SHOW_UNDEF}};
