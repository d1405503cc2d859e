/* SPDX-License-Identifier: GPL-2.0-only */
/* The variables inkstone_*, and opening the database with them. */
#include "server/variables.h"
#include <limits.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <vector>

/* The server's own (sql_show.cc), for engines with a directory in the data directory. */
extern void ignore_db_dirs_append(const char *name);

/* Options of the engine, fixed when the server starts. One line each: type of variable, name, the
   engine's option, default, what it is. The values are checked by the engine. */
#define STARTUP_NUMBERS(X)                                                                            \
  X(page_size, "page_size", 16 << 10, 0, 64 << 10, "Bytes in a page, fixed when the database is created (0: as it was created)")\
  X(buffer_pool_size, "buffer_pool_size", 128 << 20, 256 << 10, ULONGLONG_MAX, "Bytes of pages kept in memory")\
  X(buffer_pool_instances, "buffer_pool_instances", 8, 1, 64, "Partitions of the buffer pool")       \
  X(log_file_size, "log_file_size", 512 << 20, 4 << 20, 1ULL << 44, "Bytes of log that are kept for recovery")\
  X(log_buffer_size, "log_buffer_size", 16 << 20, 2 << 20, 1ULL << 32, "Bytes of log kept in memory, a power of two")\
  X(lock_memory_max, "lock_memory_max", 64 << 20, 0, ULONGLONG_MAX, "Bytes of one transaction's locks in one index, beyond which neighbouring ones are joined to ranges, which lock more")\
  X(slow_wait_ms, "slow_wait_ms", 100, 0, UINT_MAX32, "Waits of so many milliseconds and longer stand in SHOW ENGINE INKSTONE STATUS, the latest 64 (0: none)")\
  X(version_store_memory, "version_store_memory", 64 << 20, 1 << 20, ULONGLONG_MAX, "Bytes of old row versions kept in memory; more go to a file")\
  X(page_compression_level, "page_compression_level", 1, 1, 19, "Level of zstd for new placed tables that do not say it: 1 (fast) to 19 (small)")\
  X(open_files, "open_files", 0, 0, UINT_MAX32, "Files of tables that are open at once at most (0: half of the files that the server may have open)")\
  X(force_recovery, "force_recovery", 0, 0, 6, "For a database that does not open; it can be read only. 1, 2: damaged pages are left out; 3, 4: nothing is rolled back; 5: what was not committed counts as committed. 6 is refused")\
  X(recovery_threads, "recovery_threads", 0, 0, 256, "Threads that read and apply the log during recovery (0: one for each core)")\
  X(recovery_memory, "recovery_memory", 0, 0, ULONGLONG_MAX, "Bytes of changes that recovery gathers in memory; more go to a temporary file (0: half of the buffer pool)")

#define STARTUP_SWITCHES(X)                                                                           \
  X(buffer_pool_dump_at_shutdown, "buffer_pool_dump_at_shutdown", true, "Note the resident pages at shutdown and load them at the next start")\
  X(log_file_buffering, "log_file_buffering", false, "Write the log through the operating system's cache")\
  X(log_write_through, "log_write_through", true, "Open the log with O_DSYNC: a write is durable without a sync")                       \
  X(log_archive, "log_archive", false, "Keep log that recovery no longer needs")                      \
  X(redo_before_open, "redo_before_open", false, "Wait at the start until recovery has changed all pages; otherwise a page is changed when it is first read, and the others in the background")\
  X(doublewrite_skip_fresh, "doublewrite_skip_fresh", true, "Pages that the log rebuilds are not copied to the doublewrite file")

#define STARTUP_CHOICES(X)                                                                            \
  X(doublewrite, "doublewrite", "on", "Protection from torn pages: on, off or atomic")                \
  X(bulk_logging, "bulk_logging", "full", "What the log has of bulk inserts of several megabytes: full, all rows; minimal, not those of pages that the insert has to itself, which are on disk before it commits")\
  X(page_placement, "page_placement", "in_place", "Where the pages of new tables are kept that do not say it (PAGE_PLACEMENT): in_place or placed")\
  X(page_compression, "page_compression", "lz4", "How the pages of new placed tables are compressed: none, lz4 or zstd")\
  X(flush_method, "flush_method", "O_DIRECT", "How data files are written: fsync, O_DSYNC, O_DIRECT or O_DIRECT_NO_FSYNC")\
  X(log_write, "log_write", "sync", "How the log is written: sync or async")                          \
  X(io_backend, "io_backend", "auto", "auto, posix or io_uring")

static char *data_home_dir;
static MYSQL_SYSVAR_STR(data_home_dir, data_home_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                        "Directory of the database; by default \"inkstone\" in the data directory",
                        nullptr, nullptr, nullptr);

#define NUMBER(name, option, initial, least, most, help)                                              \
  static ulonglong name;                                                                              \
  static MYSQL_SYSVAR_ULONGLONG(name, name, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY, help,          \
                                nullptr, nullptr, initial, least, most, 0);
#define SWITCH(name, option, initial, help)                                                           \
  static my_bool name;                                                                                \
  static MYSQL_SYSVAR_BOOL(name, name, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY, help, nullptr,      \
                           nullptr, initial);
#define CHOICE(name, option, initial, help)                                                           \
  static char *name;                                                                                  \
  static MYSQL_SYSVAR_STR(name, name, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY, help, nullptr,       \
                          nullptr, initial);
STARTUP_NUMBERS(NUMBER)
STARTUP_SWITCHES(SWITCH)
STARTUP_CHOICES(CHOICE)
#undef NUMBER
#undef SWITCH
#undef CHOICE

static ulong flush_log_at_trx_commit;
static MYSQL_SYSVAR_ULONG(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_OPCMDARG,
                          "What a commit waits for: 1 the log is on disk, 2 it is handed to the"
                          " operating system, 0 nothing (both: on disk within about a second)",
                          nullptr, nullptr, 1, 0, 3, 0);

/* The server has a variable of the plain name. */
static my_bool opens_read_only;
static MYSQL_SYSVAR_BOOL(read_only, opens_read_only, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "Nothing on disk is changed, and every write is refused", nullptr, nullptr,
                         false);

static ulong fast_shutdown;
static MYSQL_SYSVAR_ULONG(fast_shutdown, fast_shutdown, PLUGIN_VAR_OPCMDARG,
                          "What a shutdown does: 0 purges whatever can be purged first, 1 writes all"
                          " pages, 2 writes only the log (the next start recovers), 3 as 1, but does"
                          " not wait for rollbacks of connections (the next start rolls back)",
                          nullptr, nullptr, 1, 0, 3, 0);

static ulonglong temporary_buffer_pool_size;
static MYSQL_SYSVAR_ULONGLONG(temporary_buffer_pool_size, temporary_buffer_pool_size,
                              PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                              "Bytes of pages of temporary tables kept in memory, from the first such table on;"
                              " more go to a file without a name (0: an eighth of the buffer pool)",
                              nullptr, nullptr, 0, 0, ULONGLONG_MAX, 0);

static ulonglong online_alter_log_bytes;
static MYSQL_SYSVAR_ULONGLONG(online_alter_log_max_size, online_alter_log_bytes, PLUGIN_VAR_RQCMDARG,
                              "Bytes of memory for the keys of rows that change while an index is built; the"
                              " ALTER fails where they are more",
                              nullptr, nullptr, 128 << 20, 65536, ULONGLONG_MAX, 0);

static my_bool print_all_deadlocks;
static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                         "Write each deadlock to the error log; SHOW ENGINE INKSTONE STATUS has the"
                         " latest one",
                         nullptr, nullptr, false);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                          "Seconds that a statement waits for a row lock", nullptr, nullptr, 50, 0,
                          100000000, 0);

static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                         "At REPEATABLE READ: changing or locking a row that was changed after the"
                         " snapshot fails with ER_CHECKREAD",
                         nullptr, nullptr, false);

struct st_mysql_sys_var *inkstone_variables[]= {
    MYSQL_SYSVAR(data_home_dir),
#define VARIABLE(name, ...) MYSQL_SYSVAR(name),
    STARTUP_NUMBERS(VARIABLE) STARTUP_SWITCHES(VARIABLE) STARTUP_CHOICES(VARIABLE)
#undef VARIABLE
    MYSQL_SYSVAR(flush_log_at_trx_commit),
    MYSQL_SYSVAR(read_only),
    MYSQL_SYSVAR(fast_shutdown),
    MYSQL_SYSVAR(temporary_buffer_pool_size),
    MYSQL_SYSVAR(online_alter_log_max_size),
    MYSQL_SYSVAR(print_all_deadlocks),
    MYSQL_SYSVAR(lock_wait_timeout),
    MYSQL_SYSVAR(snapshot_isolation),
    nullptr};

uint32_t flush_log_at_commit()
{
  switch (flush_log_at_trx_commit)
  {
  case 0:
    return INK_LAZY;
  case 2:
    return INK_WRITE;
  default: /* 3 is InnoDB's name for syncing more often; there is no more than at each commit. */
    return INK_SYNC;
  }
}

uint32_t shutdown_mode()
{
  switch (fast_shutdown)
  {
  case 0:
    return INK_SLOW;
  case 2:
    return INK_LOG_ONLY;
  default:
    return INK_FAST;
  }
}

bool leaves_rollbacks()
{
  return fast_shutdown == 3 && abort_loop;
}

uint64_t lock_wait_timeout_ms(THD *thd)
{
  /* NOWAIT and WAIT n are the statement's own value of lock_wait_timeout. */
  double seconds= static_cast<double>(THDVAR(thd, lock_wait_timeout));
  set_if_smaller(seconds, static_cast<double>(thd->variables.lock_wait_timeout));
  return static_cast<uint64_t>(seconds * 1000);
}

uint64_t online_alter_log_max_size()
{
  return online_alter_log_bytes;
}

const char *compression_of_pages()
{
  return page_compression && my_strcasecmp(system_charset_info, page_compression, "none") ? page_compression
                                                                                           : "lz4";
}

bool snapshot_isolation(THD *thd)
{
  return THDVAR(thd, snapshot_isolation);
}

bool prints_all_deadlocks()
{
  return print_all_deadlocks;
}

/* The engine's directory is no database of the server's: SHOW DATABASES and dumps of all databases
   pass over it, if it is in the data directory and the user has not made a database of that name.
   The server's list may be changed only while it is not read, which is before the server has
   started. */
static void hide(const std::string &directory)
{
  char parent[PATH_MAX], home[PATH_MAX];
  const size_t slash= directory.find_last_of('/');
  const bool relative= slash == std::string::npos;
  const std::string name= relative ? directory : directory.substr(slash + 1);
  if (mysqld_server_started || name.empty() || !access((directory + "/db.opt").c_str(), F_OK) ||
      !realpath(relative ? "." : directory.substr(0, slash + 1).c_str(), parent) ||
      !realpath(mysql_real_data_home, home) || strcmp(parent, home))
    return;
  ignore_db_dirs_append(name.c_str());
}

/* A long recovery is seen to go on, in the error log. */
static bool report_recovery(void *last, ink_slice text)
{
  static const time_t SECONDS_BETWEEN= 10;
  const time_t now= my_time(0);
  if (now - *static_cast<time_t *>(last) < SECONDS_BETWEEN)
    return true;
  *static_cast<time_t *>(last)= now;
  sql_print_information("Inkstone: recovery: %.*s", static_cast<int>(text.len),
                        reinterpret_cast<const char *>(text.data));
  return true;
}

/* A pool has at least 64 pages. As with InnoDB's, one that is too small is made larger, with a
   warning, rather than refused. */
static void raise_buffer_pool()
{
  static const ulonglong PAGES_MIN= 64, PAGE_SIZE_MAX= 64 << 10;
  const ulonglong least= PAGES_MIN * (page_size ? page_size : PAGE_SIZE_MAX);
  if (buffer_pool_size >= least)
    return;
  sql_print_warning("Inkstone: inkstone_buffer_pool_size is %llu bytes; adjusted to %llu, which are"
                    " %llu pages",
                    buffer_pool_size, least, PAGES_MIN);
  buffer_pool_size= least;
}

/* A directory that is named must be there: behind a typing error, or a disk that is not mounted, an
   empty database would begin. Only the one in the data directory is made. */
static bool lacks_home(ink_error *error)
{
  struct stat found;
  if (!data_home_dir || !*data_home_dir)
    return false;
  errno= ENOTDIR;
  if (!stat(data_home_dir, &found) && S_ISDIR(found.st_mode))
    return false;
  error->code= INK_NOT_A_DATABASE;
  snprintf(error->message, sizeof error->message,
           "inkstone_data_home_dir: the directory %.300s cannot be used: %s. It is not made by itself",
           data_home_dir, strerror(errno));
  return true;
}

/* Names and values. */
typedef std::vector<std::pair<std::string, std::string>> OptionValues;

/* What the variables say that are fixed when the server starts. */
static OptionValues startup_values()
{
  OptionValues values;
#define NUMBER(name, option, ...) values.emplace_back(option, std::to_string(name));
#define SWITCH(name, option, ...) values.emplace_back(option, name ? "on" : "off");
#define CHOICE(name, option, ...) values.emplace_back(option, name ? name : "");
  STARTUP_NUMBERS(NUMBER)
  STARTUP_SWITCHES(SWITCH)
  STARTUP_CHOICES(CHOICE)
#undef NUMBER
#undef SWITCH
#undef CHOICE
  values.emplace_back("read_only", opens_read_only ? "on" : "off");
  return values;
}

/* Lends the values. */
static std::vector<ink_option> options_of(const OptionValues &values)
{
  std::vector<ink_option> options;
  for (const auto &value : values)
    options.push_back({slice_of(value.first), slice_of(value.second)});
  return options;
}

static std::string home()
{
  return data_home_dir && *data_home_dir ? data_home_dir : std::string(mysql_data_home) + "/inkstone";
}

int open_database(ink_database **database, ink_error *error)
{
  if (lacks_home(error))
    return 1;
  raise_buffer_pool();
  const OptionValues values= startup_values();
  const std::vector<ink_option> options= options_of(values);
  const std::string directory= home();
  time_t reported= my_time(0);
  if (ink_open_watched(directory.c_str(), options.data(), options.size(), report_recovery,
                       &reported, database, error))
    return 1;
  hide(directory);
  return 0;
}

static bool take_page_size(void *bytes, ink_slice name, ink_slice value)
{
  const bool is_found= text_of(name) == "page_size";
  if (is_found)
    *static_cast<std::string *>(bytes)= text_of(value);
  return !is_found;
}

/* As the other database, but for its memory: a client uses it, and rows that are not its own are
   seldom asked for. A later value of an option counts. */
int open_temporary_database(ink_database **temporary, ink_error *error)
{
  static const ulonglong PAGES_MIN= 64, PART= 8;
  std::string page_bytes;
  ink_option_values(database, take_page_size, &page_bytes);
  const ulonglong least= PAGES_MIN * std::stoull(page_bytes);
  const ulonglong wanted= temporary_buffer_pool_size ? temporary_buffer_pool_size : buffer_pool_size / PART;
  const std::string pool= std::to_string(MY_MAX(wanted, least));
  OptionValues values= startup_values();
  values.insert(values.end(), {{"page_size", page_bytes},
                               {"buffer_pool_size", pool},
                               {"buffer_pool_instances", "1"},
                               {"log_buffer_size", "2m"},
                               {"version_store_memory", pool}});
  const std::vector<ink_option> options= options_of(values);
  return ink_open_scratch(home().c_str(), options.data(), options.size(), temporary, error);
}
