/* SPDX-License-Identifier: GPL-2.0-only */
/* The server makes, renames and drops a partitioned table one partition after the other. It knows
   them from a list, the table's .par file, which it renames behind the last partition and deletes
   before the first one; the definition, .frm, follows. After a crash its ddl log renames again,
   backwards or on, and drops again, and does it in the same way: by list and definition of the name
   that it is told. That works where these three are together. So:

   1. A partition that is renamed with its table notes both names of the table before (note_rename).
      When the server starts after a crash, and before it executes the ddl log, each table that was
      on its way is put together again where its definition is (begin_ddl_recovery). To be moved, a
      partition must be of a table without a definition; its note must name another, which has a
      definition and a list, of this engine, that names the partition and which lacks it; and both
      together must have exactly the partitions of that list. So it can be no other table's.
   2. CREATE, and an ALTER by copying from one partitioned table to another, are logged with the
      engine of the partitions, which is then asked to drop or to rename the table as a whole: it
      passes this on to the partition engine (drop_whole, rename_whole).

   What is left then are partitions that the server forgot: the list is deleted, not all partitions
   are dropped. When the ddl log has been executed, no statement is under way, and each definition
   is as it will stay. A partition then is one of these (end_ddl_recovery):

   | definition of its table           | its list       |
           |
   |-----------------------------------|----------------|----------------------------------------------------|
   | partitioned                       | names it       | in use
           | | partitioned                       | does not       | forgotten: dropped, or
   reorganised into others     | | partitioned                       | is not there   | not known:
   nothing is dropped anywhere             | | not partitioned (or a view)       |                |
   forgotten: of the table before REMOVE PARTITIONING | | is not there                      |
           | forgotten: of a table that was dropped             |

   A forgotten partition cannot be reached by SQL. It is dropped, but only if

   - the server had crashed, and the ddl log that it left names the table (or the server named the
     table for a statement of its own, #sql-...): so a statement that makes, renames or drops it may
     have been interrupted. A definition that was lost in another way, or is damaged, makes nothing
     forgotten;
   - it was forgotten before the ddl log was executed, too. Else the ddl log had a list with it and
     would have dropped it; it has lost its definition otherwise (that of CONVERT PARTITION can
     delete the definition of a table that it should leave alone). That it had one is noted before
     the ddl log is executed, and so outlives a second crash;
   - no partition is missing anywhere: each one that a list of a partitioned definition names is
     there, and each such definition has its list, and can be read. Else the forgotten ones could be
     the missing ones under other names; they are left, and the error log tells.

   What is not dropped because of the first two is kept for ever, which it notes, and the error log
   tells.

   A list without a definition is deleted when no partition is left of it. */
#include "ddl/partitions.h"
#include "table/meta.h"
#include <algorithm>
#include <map>
#include <memory>
#include <my_dir.h>
#include <set>

static const char PAR_END[]= ".par", FRM_END[]= ".frm";

/** The ddl log of a server that crashed is being executed, or will be. */
static bool ddl_recovery= false;
/** Partitions that definitions named before it was, if that could be found out. */
static std::set<std::string> named_before;
static bool known_before= false;
/** What the ddl log held before it was executed: the statements that were interrupted, and older
    ones. */
static std::string ddl_log;

static bool exists(const std::string &path)
{
  return !access(path.c_str(), F_OK);
}

static bool add_name(void *context, ink_slice name)
{
  static_cast<std::vector<std::string> *>(context)->push_back(text_of(name));
  return true;
}

static int all_tables(THD *thd, std::vector<std::string> *names)
{
  ink_error error;
  names->clear();
  return ink_tables(database, add_name, names, &error) ? handler_error(thd, error) : 0;
}

int partitions_of(THD *thd, const std::string &table, std::vector<std::string> *names)
{
  int failed= all_tables(thd, names);
  auto other= [&](const std::string &name) { return PartitionPath(name).table != table ||
                                                    !PartitionPath(name).is_partition(); };
  names->erase(std::remove_if(names->begin(), names->end(), other), names->end());
  return failed;
}

/* A file's bytes; false if it cannot be read. */
static bool read_file(const std::string &path, std::string *bytes)
{
  File file= my_open(path.c_str(), O_RDONLY, MYF(0));
  if (file < 0)
    return false;
  bytes->clear();
  char some[4096];
  size_t length;
  while ((length= my_read(file, reinterpret_cast<uchar *>(some), sizeof some, MYF(0))) &&
         length != MY_FILE_ERROR)
    bytes->append(some, length);
  my_close(file, MYF(0));
  return length != MY_FILE_ERROR;
}

/** What a .par file says: four bytes for its length in words, four of a checksum, four for the
    number of partitions; a byte for the engine of each, padded to a word; four bytes for the length
    of the names, and the names, each ended by a zero byte. */
struct PartitionList
{
  std::vector<std::string> names;
  std::vector<uchar> engines;
  bool parse(const std::string &bytes);
};

bool PartitionList::parse(const std::string &bytes)
{
  const uchar *data= reinterpret_cast<const uchar *>(bytes.data());
  if (bytes.size() < 16)
    return false;
  const size_t words= uint4korr(data), count= uint4korr(data + 8);
  if (words > bytes.size() / 4 || !count || count > words * 4)
    return false;
  uint32 sum= 0;
  for (size_t i= 0; i < words; i++)
    sum^= uint4korr(data + 4 * i);
  const size_t at= 12 + (count + 3) / 4 * 4 + 4;
  if (sum || at > words * 4)
    return false;
  engines.assign(data + 12, data + 12 + count);
  for (size_t i= at; names.size() < count; i+= names.back().size() + 1)
  {
    const void *end= i < words * 4 ? memchr(data + i, 0, words * 4 - i) : nullptr;
    if (!end)
      return false;
    names.emplace_back(bytes.data() + i);
  }
  return true;
}

/* The partition engine's handler, if the ddl log must have meant a partitioned table; else
   nullptr. */
static std::unique_ptr<handler> partition_handler(THD *thd, const char *path)
{
  if (!ddl_recovery || PartitionPath(path).is_partition() || !exists(std::string(path) + PAR_END))
    return nullptr;
  return std::unique_ptr<handler>(get_new_handler(nullptr, thd->mem_root, partition_hton));
}

int rename_whole(THD *thd, const char *from, const char *to)
{
  std::unique_ptr<handler> whole= partition_handler(thd, from);
  return whole ? whole->ha_rename_table(from, to) : HA_ERR_NO_SUCH_TABLE;
}

int drop_whole(THD *thd, const char *path)
{
  std::unique_ptr<handler> whole= partition_handler(thd, path);
  if (!whole)
    return ENOENT;
  const int failed= whole->delete_table(path);
  /* The list goes first. If it is still there, the definition was not yet, and no partition was
     made. */
  return failed && exists(std::string(path) + PAR_END) ? ENOENT : failed;
}

/* ---- Tables that were on their way ------------------------------------------------------------- */

/* The tree of facts of a table that is not in use; the table is given back when `table` goes. */
static MetaTree facts_of(const std::string &name, OwnedTable *table)
{
  ink_error error;
  return open_table(slice_of(name), table, &error) ? MetaTree() : meta_tree_of(slice_of(name), table->get());
}

int note_rename(THD *thd, const char *from, const char *to)
{
  const std::string name= TableName(from).text();
  const PartitionPath old_path(name), new_path(TableName(to).text());
  if (!old_path.is_partition() || old_path.partition != new_path.partition ||
      old_path.table == new_path.table)
    return 0;
  OwnedTable opened;
  const MetaTree facts= facts_of(name, &opened);
  if (!facts)
    return 0; /* Then the renaming fails and says why. */
  /* Durable before the new name is: commits are in order. */
  const std::string both= old_path.table + '\0' + new_path.table;
  return meta_put(thd, facts, {{INK_STR("renamed"), slice_of(both)}}, INK_LAZY);
}

/* The other name that a partition's table had or was to get; empty if none is noted. */
static std::string other_name(const std::string &partition)
{
  OwnedTable opened;
  std::vector<uchar> bytes;
  const MetaTree facts= facts_of(partition, &opened);
  if (!facts || meta_get(nullptr, facts, INK_STR("renamed"), &bytes))
    return "";
  const std::string both(bytes.begin(), bytes.end()), table= PartitionPath(partition).table;
  const size_t middle= both.find('\0');
  if (middle == std::string::npos)
    return "";
  const std::string one= both.substr(0, middle), other= both.substr(middle + 1);
  return one == table ? other : other == table ? one : "";
}

static std::string in_data_home(const std::string &table)
{
  return std::string(mysql_data_home) + "/" + table;
}

/* What follows a table's name in those of its partitions. */
typedef std::set<std::string> Parts;

/* Engines of plugins have numbers by the order in which they were loaded: a list may have another
   number for this one than it has now. */
static bool may_be_ours(uchar engine)
{
  return engine == ha_legacy_type(inkstone_hton) || engine >= DB_TYPE_FIRST_DYNAMIC;
}

/* The partitions that a table's list names; none if it cannot be read, or is of another
   engine's. */
static Parts listed_parts(const std::string &table)
{
  std::string bytes;
  PartitionList list;
  Parts parts;
  if (read_file(in_data_home(table) + PAR_END, &bytes) && list.parse(bytes) &&
      std::all_of(list.engines.begin(), list.engines.end(), may_be_ours))
    for (const std::string &name : list.names)
      parts.insert(PARTITION_MARK + name);
  return parts;
}

/* Puts a table together where its definition is. `stray` has no definition, and these
   partitions. */
static void reunite(const std::string &stray, const Parts &stray_parts,
                    const std::map<std::string, Parts> &tables)
{
  std::string home;
  for (const std::string &part : stray_parts)
  {
    const std::string other= other_name(stray + part);
    if (other.empty() || (!home.empty() && other != home))
      return;
    home= other;
  }
  if (home.empty() || !exists(in_data_home(home) + FRM_END))
    return;
  const bool list_is_stray= !exists(in_data_home(home) + PAR_END);
  const Parts listed= listed_parts(list_is_stray ? stray : home);
  Parts together= stray_parts;
  size_t count= stray_parts.size();
  if (tables.count(home))
  {
    const Parts &home_parts= tables.at(home);
    together.insert(home_parts.begin(), home_parts.end());
    count+= home_parts.size();
  }
  if (together != listed || count != listed.size())
    return;
  ink_error error;
  bool failed= list_is_stray && my_rename((in_data_home(stray) + PAR_END).c_str(),
                                          (in_data_home(home) + PAR_END).c_str(), MYF(MY_SYNC_DIR));
  for (const std::string &part : stray_parts)
    failed= failed || ink_rename_table(database, slice_of(stray + part), slice_of(home + part), &error);
  if (failed)
    sql_print_error("Inkstone: partitions of %s, which were being renamed to or from %s, cannot be put back",
                    home.c_str(), stray.c_str());
  else
    sql_print_information("Inkstone: renaming %s to or from %s was interrupted; %zu partitions are put back",
                          home.c_str(), stray.c_str(), stray_parts.size());
}

static void reunite_all()
{
  std::vector<std::string> names;
  if (all_tables(nullptr, &names))
    return;
  std::map<std::string, Parts> tables;
  for (const std::string &name : names)
  {
    const PartitionPath path(name);
    if (path.is_partition())
      tables[path.table].insert(path.partition);
  }
  for (const auto &table : tables)
    if (!exists(in_data_home(table.first) + FRM_END))
      reunite(table.first, table.second, tables);
}

/* ---- What is left ------------------------------------------------------------------------------ */

/** What the server's folders say of partitioned tables. */
class Survey
{
public:
  explicit Survey(const std::vector<std::string> &tables) : tables(tables.begin(), tables.end()) {}
  /** Looks at every database; false if one cannot be read. */
  bool look();
  bool names(const std::string &partition) const { return named.count(partition) != 0; }
  /** Whether there is a definition of this table that can be read. */
  bool defines(const std::string &table) const { return defined.count(table) != 0; }
  const std::set<std::string> &all_named() const { return named; }
  /** What definitions name and is not there. */
  std::vector<std::string> missing;
  /** Tables that have a list and no definition; the list is of our partitions, or unreadable. */
  std::vector<std::string> stray_lists;
  /** Names of databases: of folders. */
  std::set<std::string> databases;

private:
  bool look_at(const std::string &folder);
  void note_definition(const std::string &table);
  void note_stray_list(const std::string &table);

  std::set<std::string> tables, named, defined;
};

bool Survey::look()
{
  MY_DIR *folders= my_dir(mysql_data_home, MYF(MY_WANT_STAT));
  if (!folders)
    return false;
  bool seen= true;
  for (size_t i= 0; i < folders->number_of_files && seen; i++)
  {
    const fileinfo &file= folders->dir_entry[i];
    if (MY_S_ISDIR(file.mystat->st_mode) && file.name[0] != '.' && file.name[0] != '#')
      seen= look_at(file.name);
  }
  my_dirend(folders);
  return seen;
}

bool Survey::look_at(const std::string &folder)
{
  MY_DIR *files= my_dir(in_data_home(folder).c_str(), MYF(MY_DONT_SORT));
  if (!files)
  {
    /* Such as lost+found: that does not matter if no table of this engine is there. */
    const std::string prefix= folder + "/";
    const auto first= tables.lower_bound(prefix);
    return first == tables.end() || first->compare(0, prefix.size(), prefix);
  }
  std::set<std::string> definitions;
  for (size_t i= 0; i < files->number_of_files; i++)
    definitions.insert(files->dir_entry[i].name);
  my_dirend(files);
  databases.insert(folder);
  for (const std::string &name : definitions)
  {
    const size_t dot= name.rfind('.');
    if (dot == std::string::npos)
      continue;
    const std::string table= folder + "/" + name.substr(0, dot);
    if (!name.compare(dot, std::string::npos, FRM_END))
      note_definition(table);
    else if (!name.compare(dot, std::string::npos, PAR_END) &&
             !definitions.count(name.substr(0, dot) + FRM_END))
      note_stray_list(table);
  }
  return true;
}

/* Bytes 3 and 61 of a definition are the engines of the table and of its partitions. */
void Survey::note_definition(const std::string &table)
{
  const std::string path= in_data_home(table);
  std::string definition, bytes;
  if (!read_file(path + FRM_END, &definition))
  {
    missing.push_back(table + FRM_END);
    return;
  }
  const bool is_view= !definition.compare(0, 9, "TYPE=VIEW");
  if (!is_view && (definition.size() < 64 || static_cast<uchar>(definition[0]) != 254))
  {
    /* Damaged: it may have been that of a partitioned table. */
    missing.push_back(table + FRM_END);
    return;
  }
  defined.insert(table);
  if (is_view || static_cast<uchar>(definition[3]) != DB_TYPE_PARTITION_DB)
    return;
  PartitionList list;
  if (!read_file(path + PAR_END, &bytes) || !list.parse(bytes))
  {
    if (may_be_ours(static_cast<uchar>(definition[61])))
      missing.push_back(table + PAR_END);
    return;
  }
  for (size_t i= 0; i < list.names.size(); i++)
  {
    const std::string partition= table + PARTITION_MARK + list.names[i];
    named.insert(partition);
    if (may_be_ours(list.engines[i]) && !tables.count(partition))
      missing.push_back(partition);
  }
}

void Survey::note_stray_list(const std::string &table)
{
  std::string bytes;
  PartitionList list;
  if (read_file(in_data_home(table) + PAR_END, &bytes) &&
      (!list.parse(bytes) || list.engines.front() == ha_legacy_type(inkstone_hton)))
    stray_lists.push_back(table);
}

static bool is_kept(const std::string &partition)
{
  OwnedTable opened;
  std::vector<uchar> bytes;
  const MetaTree facts= facts_of(partition, &opened);
  return !facts || meta_get(nullptr, facts, INK_STR("kept"), &bytes) || !bytes.empty();
}

/* Notes in one transaction that these partitions are to be kept, or need not be; whether that is
   durable. */
static bool note_kept(const std::set<std::string> &partitions, bool kept)
{
  std::vector<OwnedTable> opened;
  std::vector<MetaFacts> tables;
  for (const std::string &partition : partitions)
  {
    OwnedTable table;
    const MetaTree facts= facts_of(partition, &table);
    if (!facts)
      continue; /* Of another engine. */
    tables.push_back({facts, {{INK_STR("kept"), kept ? INK_STR("1") : INK_STR("")}}});
    opened.push_back(std::move(table));
  }
  return tables.empty() || !meta_put_all(nullptr, tables, INK_SYNC);
}

static void keep(const std::string &partition)
{
  const bool noted= note_kept({partition}, true);
  sql_print_error("Inkstone: partition %s has no definition, and is not known to be what an interrupted statement "
                  "left; it is kept%s",
                  partition.c_str(), noted ? "" : ", but could not be marked");
}

static std::string ddl_log_path()
{
  char path[FN_REFLEN];
  fn_format(path, opt_ddl_recovery_file, mysql_data_home, ".log", MYF(MY_REPLACE_EXT));
  return path;
}

/* Whether the ddl log names a table ("db/t"): its names are behind a length or within a path, and
   end with a zero byte or with what a partition adds. */
static bool log_names(const std::string &table)
{
  const std::string name= table.substr(table.find(FN_LIBCHAR) + 1);
  for (size_t at= ddl_log.find(name); at != std::string::npos; at= ddl_log.find(name, at + 1))
  {
    const char before= at ? ddl_log[at - 1] : 0, behind= ddl_log.c_str()[at + name.size()];
    if ((!before || before == FN_LIBCHAR) && (!behind || behind == PARTITION_MARK[0]))
      return true;
  }
  return false;
}

/* Whether a statement that was interrupted may have left a table without a definition. */
static bool may_be_left(const std::string &table)
{
  return !table.compare(table.find(FN_LIBCHAR) + 1, 4, "#sql") || log_names(table);
}

static bool surely_absent(const std::string &path)
{
  return access(path.c_str(), F_OK) && errno == ENOENT;
}

/* Partitions of no table that may be dropped. */
static std::vector<std::string> forgotten_of(const std::vector<std::string> &tables, const Survey &survey)
{
  std::vector<std::string> forgotten;
  for (const std::string &name : tables)
  {
    const PartitionPath path(name);
    if (!path.is_partition() || survey.names(name) || !surely_absent(in_data_home(name) + FRM_END) ||
        !survey.databases.count(name.substr(0, name.find(FN_LIBCHAR))))
      continue;
    if (!survey.defines(path.table) && !surely_absent(in_data_home(path.table) + FRM_END))
      continue; /* The folder was not read to its end. */
    if (named_before.count(name) || (!is_kept(name) && !may_be_left(path.table)))
      keep(name);
    else if (!is_kept(name))
      forgotten.push_back(name);
  }
  return forgotten;
}

static void remove_leftovers()
{
  std::vector<std::string> tables;
  if (all_tables(nullptr, &tables))
    return;
  Survey survey(tables);
  if (!known_before || !survey.look())
  {
    sql_print_warning("Inkstone: the data directory cannot be read, unfinished DDL was not looked for");
    return;
  }
  const std::vector<std::string> forgotten= forgotten_of(tables, survey);
  note_kept(survey.all_named(), false);
  if (forgotten.empty() && survey.stray_lists.empty())
    return;
  if (!survey.missing.empty())
  {
    for (const std::string &name : survey.missing)
      sql_print_error("Inkstone: a partitioned table needs %s, which is missing", name.c_str());
    for (const std::string &name : forgotten)
      sql_print_warning("Inkstone: partition %s is of no table; it is kept, as others are missing",
                        name.c_str());
    return;
  }
  for (const std::string &name : forgotten)
  {
    ink_error error;
    const bool failed= ink_drop_table(database, slice_of(name), &error);
    sql_print_information("Inkstone: partition %s, which an interrupted statement left, %s", name.c_str(),
                          failed ? error.message : "is dropped");
  }
  for (const std::string &table : survey.stray_lists)
  {
    std::vector<std::string> left;
    if (!partitions_of(nullptr, table, &left) && left.empty() &&
        !my_delete((in_data_home(table) + PAR_END).c_str(), MYF(0)))
      sql_print_information("Inkstone: the list %s.par, which an interrupted statement left, is deleted",
                            table.c_str());
  }
}

static void do_begin()
{
  reunite_all();
  std::vector<std::string> tables;
  if (all_tables(nullptr, &tables))
    return;
  Survey survey(tables);
  known_before= survey.look();
  named_before= survey.all_named();
  /* A note that stays because of another crash costs a leftover that is kept; a note that is lost,
     data. */
  known_before= known_before && note_kept(named_before, true);
  if (!read_file(ddl_log_path(), &ddl_log))
    ddl_log.clear(); /* Then nothing is dropped but what the server named itself. */
}

/* Does what may run out of memory. */
static void attempt(void (*what)())
{
  try
  {
    what();
  }
  catch (const std::bad_alloc &)
  {
    sql_print_error("Inkstone: out of memory while looking for unfinished DDL");
  }
}

void begin_ddl_recovery()
{
  ddl_recovery= ink_recovered(database) && !mysqld_server_started;
  if (ddl_recovery)
    attempt(do_begin);
}

int end_ddl_recovery(handlerton *)
{
  if (ddl_recovery && database)
    attempt(remove_leftovers);
  ddl_recovery= false;
  named_before.clear();
  ddl_log.clear();
  return 0;
}
