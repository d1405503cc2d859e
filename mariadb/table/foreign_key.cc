/* SPDX-License-Identifier: GPL-2.0-only */
/* Reading and writing foreign keys, and what is said of them (table/foreign_key.h). */
#include "table/foreign_key.h"
#include "server/session.h"
#include "sql_show.h"
#include <algorithm>
#include <map>
#include <mutex>

static std::string decode(const std::string &of_file)
{
  char name[NAME_LEN + 1];
  /* The server's own names of copies are the same in both. */
  if (!of_file.compare(0, strlen(tmp_file_prefix), tmp_file_prefix))
    return of_file;
  return std::string(name, filename_to_tablename(of_file.c_str(), name, sizeof name, true));
}

SqlName::SqlName(const std::string &name)
{
  const size_t slash= name.find(FN_LIBCHAR);
  database= decode(name.substr(0, slash));
  table= decode(name.substr(slash + 1));
}

std::string engine_name(const char *database, const char *table)
{
  char of_database[FN_REFLEN], of_table[FN_REFLEN];
  of_database[tablename_to_filename(database, of_database, sizeof of_database - 1)]= 0;
  of_table[tablename_to_filename(table, of_table, sizeof of_table - 1)]= 0;
  return std::string(of_database) + FN_LIBCHAR + of_table;
}

static bool add(void *context, ink_slice table, const ink_reference *reference)
{
  try
  {
    ForeignKey key;
    key.name= text_of(reference->name);
    key.child= text_of(table);
    key.parent= text_of(reference->parent);
    for (size_t i= 0; i < reference->column_count; i++)
    {
      key.columns.push_back(text_of(reference->columns[i]));
      key.parent_columns.push_back(text_of(reference->parent_columns[i]));
    }
    key.on_delete= reference->on_delete;
    key.on_update= reference->on_update;
    static_cast<ForeignKeys *>(context)->push_back(std::move(key));
    return true;
  }
  catch (const std::bad_alloc &)
  {
    return false;
  }
}

static int sorted(THD *thd, int failed, const ink_error &error, ForeignKeys *found)
{
  std::sort(found->begin(), found->end(),
            [](const ForeignKey &one, const ForeignKey &other) { return one.name < other.name; });
  return failed ? handler_error(thd, error) : 0;
}

int foreign_keys_of(THD *thd, const std::string &table, ForeignKeys *found)
{
  ink_error error;
  found->clear();
  const int failed= ink_references(database, slice_of(table), add, found, &error);
  return sorted(thd, failed, error, found);
}

int foreign_keys_to(THD *thd, const std::string &parent, ForeignKeys *found)
{
  ink_error error;
  found->clear();
  const int failed= ink_references_to(database, slice_of(parent), add, found, &error);
  return sorted(thd, failed, error, found);
}

int set_foreign_keys(THD *thd, const std::vector<std::pair<std::string, ForeignKeys>> &tables)
{
  /* What is lent out to the engine: these do not move once they are filled. */
  std::vector<std::vector<ink_slice>> columns;
  std::vector<std::vector<ink_reference>> references;
  std::vector<ink_table_references> changed;
  size_t count= 0;
  for (const auto &table : tables)
    count+= table.second.size();
  columns.reserve(2 * count);
  references.reserve(tables.size());
  const auto lend= [&](const std::vector<std::string> &names) {
    std::vector<ink_slice> lent;
    for (const std::string &name : names)
      lent.push_back(slice_of(name));
    columns.push_back(std::move(lent));
    return columns.back().data();
  };
  for (const auto &table : tables)
  {
    std::vector<ink_reference> of_table;
    for (const ForeignKey &key : table.second)
      of_table.push_back({slice_of(key.name), slice_of(key.parent), lend(key.columns), lend(key.parent_columns),
                          key.columns.size(), key.on_delete, key.on_update});
    references.push_back(std::move(of_table));
    changed.push_back({slice_of(table.first), references.back().data(), references.back().size()});
  }
  ink_error error;
  return ink_set_references(database, changed.data(), changed.size(), &error) ? handler_error(thd, error) : 0;
}

static void put_name(THD *thd, String *out, const std::string &name)
{
  append_identifier(thd, out, name.data(), name.size());
}

static void put_columns(THD *thd, String *out, const std::vector<std::string> &names)
{
  out->append(STRING_WITH_LEN(" ("));
  for (size_t i= 0; i < names.size(); i++)
  {
    if (i)
      out->append(STRING_WITH_LEN(", "));
    put_name(thd, out, names[i]);
  }
  out->append(')');
}

static void put_table(THD *thd, String *out, const SqlName &name, bool with_database)
{
  if (with_database)
  {
    put_name(thd, out, name.database);
    out->append('.');
  }
  put_name(thd, out, name.table);
}

static void put_action(String *out, const char *when, uint32_t action)
{
  static const char *const names[]= {nullptr, "NO ACTION", "CASCADE", "SET NULL"};
  if (action == INK_RESTRICT || action > INK_SET_NULL)
    return;
  out->append(when, strlen(when));
  out->append(names[action], strlen(names[action]));
}

std::string describe(THD *thd, const ForeignKey &key)
{
  String out;
  const SqlName child(key.child), parent(key.parent);
  out.append(STRING_WITH_LEN("CONSTRAINT "));
  put_name(thd, &out, key.name);
  out.append(STRING_WITH_LEN(" FOREIGN KEY"));
  put_columns(thd, &out, key.columns);
  out.append(STRING_WITH_LEN(" REFERENCES "));
  put_table(thd, &out, parent, parent.database != child.database);
  put_columns(thd, &out, key.parent_columns);
  put_action(&out, " ON DELETE ", key.on_delete);
  put_action(&out, " ON UPDATE ", key.on_update);
  return std::string(out.ptr(), out.length());
}

std::string describe_with_table(THD *thd, const ForeignKey &key)
{
  String out;
  put_table(thd, &out, SqlName(key.child), true);
  out.append(STRING_WITH_LEN(", "));
  return std::string(out.ptr(), out.length()) + describe(thd, key);
}

static std::mutex latest_mutex;
static std::string latest;

std::string latest_foreign_key_error()
{
  std::lock_guard<std::mutex> latch(latest_mutex);
  return latest;
}

void note_foreign_key_error(THD *thd, const ForeignKey &key, bool of_child)
{
  const std::string text= describe_with_table(thd, key);
  if (Session *session= session_of(thd))
    session->foreign_key_error= text;
  char now[32];
  const time_t seconds= time(nullptr);
  struct tm local;
  strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local));
  std::lock_guard<std::mutex> latch(latest_mutex);
  latest= std::string(now) + (of_child ? " a child row has no parent row: " : " a parent row has child rows: ") + text;
}

int drop_foreign_key(THD *thd, const std::string &table, const std::string &name)
{
  ForeignKeys keys;
  if (int failed= foreign_keys_of(thd, table, &keys))
    return failed;
  const auto has_name= [&](const ForeignKey &key) { return same_column(key.name.c_str(), name.c_str()); };
  keys.erase(std::remove_if(keys.begin(), keys.end(), has_name), keys.end());
  return set_foreign_keys(thd, {{table, keys}});
}

int rename_referring_columns(THD *thd, const std::string &table, const std::string &from, const std::string &to)
{
  ForeignKeys all;
  if (int failed= foreign_keys_of(thd, std::string(), &all))
    return failed;
  std::map<std::string, ForeignKeys> by_child;
  std::set<std::string> changed;
  for (ForeignKey &key : all)
  {
    const auto rename= [&](std::vector<std::string> &columns) {
      for (std::string &column : columns)
        if (same_column(column.c_str(), from.c_str()))
        {
          column= to;
          changed.insert(key.child);
        }
    };
    if (key.child == table)
      rename(key.columns);
    if (key.parent == table)
      rename(key.parent_columns);
    by_child[key.child].push_back(key);
  }
  std::vector<std::pair<std::string, ForeignKeys>> tables;
  for (const std::string &child : changed)
    tables.push_back({child, by_child[child]});
  return tables.empty() ? 0 : set_foreign_keys(thd, tables);
}
