/* SPDX-License-Identifier: GPL-2.0-only */
/* SHOW STATUS: the metrics of the engine, and those that InnoDB has under its names. */
#include "server/status.h"
#include <vector>

/* InnoDB's name, and the sum of metrics (less those after a minus) that it stands for. As there,
   syncs are those of data and log, writes those of data alone, and what is written to the log is
   counted without padding. */
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
    {"row_lock_current_waits", {"lock_waiting"}, nullptr},
    {"row_lock_waits", {"lock_waits"}, nullptr},
};

static bool add_metric(void *context, const ink_metric *metric)
{
  static_cast<std::vector<ink_metric> *>(context)->push_back(*metric);
  return true;
}

static bool find_row_lock_waits(void *context, const ink_duration *duration)
{
  static const char NAME[]= "row_lock_wait";
  if (duration->name.len != sizeof NAME - 1 || memcmp(duration->name.data, NAME, sizeof NAME - 1))
    return true;
  *static_cast<ink_duration *>(context)= *duration;
  return false;
}

/* Milliseconds, of waits that have ended. */
static std::vector<std::pair<const char *, ulonglong>> row_lock_times()
{
  ink_duration waits= {};
  if (database)
    ink_durations(database, find_row_lock_waits, &waits);
  const ulonglong MILLISECOND= 1000000;
  return {{"row_lock_time", waits.sum_ns / MILLISECOND},
          {"row_lock_time_avg", waits.count ? waits.sum_ns / waits.count / MILLISECOND : 0},
          {"row_lock_time_max", waits.max_ns / MILLISECOND}};
}

static ulonglong value_of(const std::vector<ink_metric> &metrics, const char *name)
{
  for (const ink_metric &metric : metrics)
    if (name && metric.name.len == strlen(name) && !memcmp(metric.name.data, name, metric.name.len))
      return metric.value;
  return 0;
}

/* The server reads what is shown after this has returned, and another connection may ask meanwhile:
   it lies in the statement's memory. */
static int show_all(MYSQL_THD thd, struct st_mysql_show_var *variable, void *,
                    struct system_status_var *, enum enum_var_type)
{
  std::vector<ink_metric> metrics;
  if (database)
    ink_metrics(database, add_metric, &metrics);
  const auto times= row_lock_times();
  const size_t count= metrics.size() + times.size() + array_elements(COUNTERPARTS);
  auto *shown= static_cast<st_mysql_show_var *>(thd->calloc((count + 1) * sizeof(st_mysql_show_var)));
  auto *values= static_cast<ulonglong *>(thd->alloc(count * sizeof(ulonglong)));
  variable->type= SHOW_ARRAY;
  variable->value= reinterpret_cast<char *>(shown);
  if (!shown || !values)
  {
    variable->type= SHOW_UNDEF;
    return 1;
  }
  auto show= [&](const char *name, ulonglong value) {
    *values= value;
    *shown++= {name, reinterpret_cast<char *>(values++), SHOW_ULONGLONG};
  };
  for (const ink_metric &metric : metrics)
    show(thd->strmake(reinterpret_cast<const char *>(metric.name.data), metric.name.len), metric.value);
  for (const auto &time : times)
    show(time.first, time.second);
  for (const Counterpart &other : COUNTERPARTS)
  {
    ulonglong sum= 0;
    for (const char *name : other.plus)
      sum+= value_of(metrics, name);
    show(other.name, sum - value_of(metrics, other.minus));
  }
  return 0;
}

struct st_mysql_show_var inkstone_status[]= {
    {"Inkstone", reinterpret_cast<char *>(&show_all), SHOW_FUNC}, {nullptr, nullptr, SHOW_UNDEF}};
