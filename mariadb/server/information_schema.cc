/* SPDX-License-Identifier: GPL-2.0-only */
/* Tables of INFORMATION_SCHEMA, from the lists of the engine. */
#include "server/information_schema.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_parse.h"
#include "sql_show.h"

struct st_mysql_information_schema inkstone_information_schema= {
    MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

/* What a visitor of the engine's lists needs to store rows. */
struct Filling
{
  THD *thd;
  TABLE *table;
  bool failed;

  /* The fields of a row that has its defaults yet. */
  Field **begin_row()
  {
    restore_record(table, s->default_values);
    return table->field;
  }
};

static void store_text(Field *field, const char *text, size_t length)
{
  field->store(text, length, system_charset_info);
  field->set_notnull();
}

static void store_slice(Field *field, ink_slice text)
{
  store_text(field, reinterpret_cast<const char *>(text.data), text.len);
}

static void store_name(Field *field, const char *name)
{
  store_text(field, name, strlen(name));
}

/* Keys are bytes: shown as hexadecimal digits. */
static void store_key(Field *field, ink_slice key)
{
  static const char DIGITS[]= "0123456789abcdef";
  char text[128];
  size_t length= MY_MIN(key.len, sizeof text / 2);
  for (size_t i= 0; i < length; i++)
  {
    text[2 * i]= DIGITS[key.data[i] >> 4];
    text[2 * i + 1]= DIGITS[key.data[i] & 15];
  }
  store_text(field, text, 2 * length);
}

/* Of what is not there NULL stays. */
static void store_text_if_any(Field *field, ink_slice text)
{
  if (text.len)
    store_slice(field, text);
}

static void store_number(Field *field, ulonglong number)
{
  field->set_notnull();
  field->store(number, true);
}

static bool store_row(Filling *filling)
{
  filling->failed= schema_table_store_record(filling->thd, filling->table);
  return !filling->failed;
}

/* Fills a table with what the engine's list `visit_all` calls `visit` for. Other users'
   transactions
   are shown to users that may see their processes. */
template <class Info>
static int fill(THD *thd, TABLE_LIST *tables, bool (*visit)(void *, const Info *),
                int (*visit_all)(const ink_database *, bool (*)(void *, const Info *), void *, ink_error *))
{
  if (check_global_access(thd, PROCESS_ACL, true) || !database)
    return 0;
  ink_error error;
  Filling filling= {thd, tables->table, false};
  const int failed= visit_all(database, visit, &filling, &error);
  if (failed)
    my_error(ER_GET_ERRMSG, MYF(0), HA_ERR_INKSTONE, error.message, "INKSTONE");
  return failed || filling.failed;
}

/* The same of a list that cannot fail. */
template <class Info>
static int fill(THD *thd, TABLE_LIST *tables, bool (*visit)(void *, const Info *),
                void (*visit_all)(const ink_database *, bool (*)(void *, const Info *), void *))
{
  if (check_global_access(thd, PROCESS_ACL, true) || !database)
    return 0;
  Filling filling= {thd, tables->table, false};
  visit_all(database, visit, &filling);
  return filling.failed;
}

static const char *const STATES[]= {"ACTIVE", "PREPARED"};
static const char *const LEVELS[]= {"READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ",
                                    "SNAPSHOT", "SERIALIZABLE"};
static const char *const KINDS[]= {"ROW", "RANGE", "GAP"};
static const char *const LOCK_STATES[]= {"HELD", "CHANGED", "WAITING"};
static const char *const MODES[]= {"", "S", "X"};

template <size_t N> static const char *word(const char *const (&words)[N], uint32_t number)
{
  return number < N ? words[number] : "?";
}

static ST_FIELD_INFO trx_fields[]= {
    Show::Column("trx_id", Show::ULonglong(), NOT_NULL),
    Show::Column("trx_state", Show::Varchar(16), NOT_NULL),
    Show::Column("trx_mysql_thread_id", Show::ULonglong(), NOT_NULL),
    Show::Column("trx_isolation_level", Show::Varchar(16), NOT_NULL),
    Show::Column("trx_age_ms", Show::ULonglong(), NOT_NULL),
    Show::Column("trx_rows_modified", Show::ULonglong(), NOT_NULL),
    Show::Column("trx_rows_locked", Show::ULonglong(), NOT_NULL),
    Show::Column("trx_waits_for", Show::ULonglong(), NULLABLE),
    Show::Column("trx_waited_ms", Show::ULonglong(), NOT_NULL),
    Show::Column("trx_query", Show::Varchar(1024), NULLABLE),
    Show::CEnd()};

static bool fill_trx(void *context, const ink_transaction_info *info)
{
  Filling *filling= static_cast<Filling *>(context);
  Field **field= filling->begin_row();
  field[0]->store(info->id, true);
  store_name(field[1], word(STATES, info->state));
  field[2]->store(info->tag, true);
  store_name(field[3], word(LEVELS, info->isolation));
  field[4]->store(info->age_ms, true);
  field[5]->store(info->rows, true);
  field[6]->store(info->row_locks, true);
  if (info->waits_for)
    store_number(field[7], info->waits_for);
  field[8]->store(info->waited_ms, true);
  store_text_if_any(field[9], info->statement);
  return store_row(filling);
}

static int fill_trx_table(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill(thd, tables, fill_trx, ink_transactions);
}

static ST_FIELD_INFO locks_fields[]= {
    Show::Column("lock_trx_id", Show::ULonglong(), NOT_NULL),
    Show::Column("lock_thread_id", Show::ULonglong(), NOT_NULL),
    Show::Column("lock_state", Show::Varchar(8), NOT_NULL),
    Show::Column("lock_mode", Show::Varchar(1), NOT_NULL),
    Show::Column("lock_type", Show::Varchar(8), NOT_NULL),
    Show::Column("lock_table", Show::Varchar(1024), NOT_NULL),
    Show::Column("lock_index", Show::Varchar(256), NOT_NULL),
    Show::Column("lock_low", Show::Varchar(128), NULLABLE),
    Show::Column("lock_high", Show::Varchar(128), NULLABLE),
    Show::Column("lock_place", Show::ULonglong(), NULLABLE),
    Show::Column("lock_waits_for", Show::ULonglong(), NULLABLE),
    Show::Column("lock_waited_ms", Show::ULonglong(), NULLABLE),
    Show::Column("lock_query", Show::Varchar(1024), NULLABLE),
    Show::CEnd()};

/* What is locked, or wanted: a place for a new row is not the row's. */
static const char *kind_of(const ink_lock_info *lock)
{
  return lock->inserts ? "INSERT" : word(KINDS, lock->kind);
}

static bool fill_lock(void *context, const ink_lock_info *lock)
{
  Filling *filling= static_cast<Filling *>(context);
  Field **field= filling->begin_row();
  field[0]->store(lock->transaction, true);
  field[1]->store(lock->tag, true);
  store_name(field[2], word(LOCK_STATES, lock->state));
  store_name(field[3], word(MODES, lock->mode));
  store_name(field[4], kind_of(lock));
  store_slice(field[5], lock->table);
  store_slice(field[6], lock->tree);
  if (lock->low_bound != INK_UNBOUNDED)
    store_key(field[7], lock->low);
  if (lock->high_bound != INK_UNBOUNDED)
    store_key(field[8], lock->high);
  if (lock->state == INK_LOCK_WAITING)
  {
    if (lock->place)
      store_number(field[9], lock->place);
    store_number(field[10], lock->waits_for);
    store_number(field[11], lock->waited_ms);
    store_text_if_any(field[12], lock->statement);
  }
  return store_row(filling);
}

static int fill_locks_table(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill(thd, tables, fill_lock, ink_locks);
}

static ST_FIELD_INFO lock_waits_fields[]= {
    Show::Column("requesting_trx_id", Show::ULonglong(), NOT_NULL),
    Show::Column("requesting_thread_id", Show::ULonglong(), NOT_NULL),
    Show::Column("blocking_trx_id", Show::ULonglong(), NOT_NULL),
    Show::Column("requested_lock_mode", Show::Varchar(1), NOT_NULL),
    Show::Column("requested_lock_type", Show::Varchar(8), NOT_NULL),
    Show::Column("lock_table", Show::Varchar(1024), NOT_NULL),
    Show::Column("lock_index", Show::Varchar(256), NOT_NULL),
    Show::Column("lock_key", Show::Varchar(128), NOT_NULL),
    Show::Column("queue_place", Show::ULonglong(), NULLABLE),
    Show::Column("waited_ms", Show::ULonglong(), NOT_NULL),
    Show::Column("requesting_query", Show::Varchar(1024), NULLABLE),
    Show::CEnd()};

static bool fill_wait(void *context, const ink_lock_info *wait)
{
  Filling *filling= static_cast<Filling *>(context);
  Field **field= filling->begin_row();
  field[0]->store(wait->transaction, true);
  field[1]->store(wait->tag, true);
  field[2]->store(wait->waits_for, true);
  store_name(field[3], word(MODES, wait->mode));
  store_name(field[4], kind_of(wait));
  store_slice(field[5], wait->table);
  store_slice(field[6], wait->tree);
  store_key(field[7], wait->low);
  if (wait->place)
    store_number(field[8], wait->place);
  field[9]->store(wait->waited_ms, true);
  store_text_if_any(field[10], wait->statement);
  return store_row(filling);
}

static int fill_lock_waits_table(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill(thd, tables, fill_wait, ink_waits);
}

static ST_FIELD_INFO durations_fields[]= {
    Show::Column("operation", Show::Varchar(32), NOT_NULL),
    Show::Column("count", Show::ULonglong(), NOT_NULL),
    Show::Column("sum_us", Show::ULonglong(), NOT_NULL),
    Show::Column("p50_us", Show::ULonglong(), NOT_NULL),
    Show::Column("p90_us", Show::ULonglong(), NOT_NULL),
    Show::Column("p99_us", Show::ULonglong(), NOT_NULL),
    Show::Column("p999_us", Show::ULonglong(), NOT_NULL),
    Show::Column("max_us", Show::ULonglong(), NOT_NULL),
    Show::Column("description", Show::Varchar(256), NOT_NULL),
    Show::CEnd()};

static bool fill_duration(void *context, const ink_duration *duration)
{
  Filling *filling= static_cast<Filling *>(context);
  Field **field= filling->begin_row();
  store_slice(field[0], duration->name);
  field[1]->store(duration->count, true);
  const ulonglong nanoseconds[]= {duration->sum_ns, duration->p50_ns, duration->p90_ns,
                                  duration->p99_ns, duration->p999_ns, duration->max_ns};
  for (size_t i= 0; i < array_elements(nanoseconds); i++)
    field[2 + i]->store(nanoseconds[i] / 1000, true);
  store_slice(field[8], duration->help);
  return store_row(filling);
}

static int fill_durations_table(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill(thd, tables, fill_duration, ink_durations);
}

static ST_FIELD_INFO histogram_fields[]= {
    Show::Column("operation", Show::Varchar(32), NOT_NULL),
    Show::Column("longest_ns", Show::ULonglong(), NULLABLE),
    Show::Column("count", Show::ULonglong(), NOT_NULL),
    Show::CEnd()};

static bool fill_bucket(void *context, const ink_duration_bucket *bucket)
{
  Filling *filling= static_cast<Filling *>(context);
  Field **field= filling->begin_row();
  store_slice(field[0], bucket->name);
  if (bucket->longest_ns != ULONGLONG_MAX)
    store_number(field[1], bucket->longest_ns);
  field[2]->store(bucket->count, true);
  return store_row(filling);
}

static int fill_histogram_table(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill(thd, tables, fill_bucket, ink_duration_buckets);
}

static int initialise_table(void *plugin, ST_FIELD_INFO *fields,
                            int (*fill)(THD *, TABLE_LIST *, Item *))
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(plugin);
  schema->fields_info= fields;
  schema->fill_table= fill;
  return 0;
}

int initialise_trx_table(void *plugin)
{
  return initialise_table(plugin, trx_fields, fill_trx_table);
}

int initialise_locks_table(void *plugin)
{
  return initialise_table(plugin, locks_fields, fill_locks_table);
}

int initialise_lock_waits_table(void *plugin)
{
  return initialise_table(plugin, lock_waits_fields, fill_lock_waits_table);
}

int initialise_durations_table(void *plugin)
{
  return initialise_table(plugin, durations_fields, fill_durations_table);
}

int initialise_histogram_table(void *plugin)
{
  return initialise_table(plugin, histogram_fields, fill_histogram_table);
}
