/* SPDX-License-Identifier: GPL-2.0-only */
/* Tables as files: FLUSH TABLES t FOR EXPORT, ALTER TABLE t DISCARD TABLESPACE and IMPORT TABLESPACE.

   While a table is exported two files stand beside its definition, in the database's directory: t.ink, a
   link to the table's file, and t.cfg, its trees. Both are copied into the other server's directory of
   the database, after DISCARD and before IMPORT; IMPORT takes them away. */
#include "ddl.h"
#include "ha_inkstone.h"
#include <algorithm>
#include <fstream>
#include <sstream>
#include <unistd.h>

/** The first line of a t.cfg. */
static const char CFG_HEADER[]= "inkstone table 1";

static std::string file_of(const TABLE *table, const char *extension)
{
  return std::string(table->s->normalized_path.str) + extension;
}

int ha_inkstone::begin_export(THD *thd)
{
  ink_error error;
  ink_buffer path= {nullptr, 0, 0};
  if (exporting)
    return 0;
  if (ink_export_begin(share->engine_table(), &exporting, &error) ||
      ink_table_path(share->engine_table(), &path, &error))
  {
    end_export();
    ink_buffer_free(&path);
    return handler_error(thd, error);
  }
  const std::string target(reinterpret_cast<char *>(path.data), path.len);
  ink_buffer_free(&path);
  char absolute[FN_REFLEN];
  my_realpath(absolute, target.c_str(), MYF(0));
  const std::string link= file_of(table, ".ink");
  std::ofstream cfg(file_of(table, ".cfg"));
  cfg << CFG_HEADER << '\n';
  const ink_table *engine_table= share->engine_table();
  for (size_t i= 0; i < ink_table_tree_count(engine_table); i++)
  {
    const ink_tree *tree= ink_table_tree(engine_table, i);
    const ink_slice name= ink_tree_name(tree);
    cfg << ink_tree_number(tree) << ' '
        << std::string(reinterpret_cast<const char *>(name.data), name.len) << '\n';
  }
  cfg.close();
  unlink(link.c_str());
  if (!cfg.fail() && !symlink(absolute, link.c_str()))
    return 0;
  my_error(ER_CANT_CREATE_FILE, MYF(0), link.c_str(), errno);
  end_export();
  return HA_ERR_INKSTONE;
}

void ha_inkstone::end_export()
{
  if (!exporting)
    return;
  unlink(file_of(table, ".ink").c_str());
  unlink(file_of(table, ".cfg").c_str());
  ink_export_end(exporting);
  exporting= nullptr;
}

int ha_inkstone::discard_or_import_tablespace(my_bool discard)
{
  try
  {
    return discard ? discard_table() : import_table();
  }
  catch (const std::bad_alloc &)
  {
    return HA_ERR_OUT_OF_MEM;
  }
}

int ha_inkstone::discard_table()
{
  int failed= truncate();
  return failed ? failed : share->set_discarded(thd());
}

/* The trees that a t.cfg names. False: it is none. */
static bool read_cfg(const std::string &file, std::vector<uint32_t> *numbers,
                     std::vector<std::string> *names)
{
  std::ifstream cfg(file);
  std::string line;
  if (!std::getline(cfg, line) || line != CFG_HEADER)
    return false;
  while (std::getline(cfg, line))
  {
    size_t blank= line.find(' ');
    if (blank == std::string::npos)
      return false;
    numbers->push_back(static_cast<uint32_t>(strtoul(line.c_str(), nullptr, 10)));
    names->push_back(line.substr(blank + 1));
  }
  return !numbers->empty();
}

int ha_inkstone::import_table()
{
  const std::string cfg= file_of(table, ".cfg"), data= file_of(table, ".ink");
  std::vector<uint32_t> numbers;
  std::vector<std::string> names;
  if (!read_cfg(cfg, &numbers, &names))
  {
    my_error(ER_FILE_NOT_FOUND, MYF(0), cfg.c_str(), errno);
    return HA_ERR_INKSTONE;
  }
  std::vector<ink_import_tree> trees;
  for (size_t i= 0; i < numbers.size(); i++)
    trees.push_back({numbers[i], slice_of(names[i])});
  for (uint i= 0; i < table->s->keys; i++)
    if (!is_clustered(i) &&
        std::find(names.begin(), names.end(), table->key_info[i].name.str) == names.end())
    {
      my_error(ER_TABLE_SCHEMA_MISMATCH, MYF(0), table->key_info[i].name.str);
      return HA_ERR_INKSTONE;
    }
  ink_error error;
  const std::string imported= share->name + REPLACEMENT;
  if (ink_import_table(database, slice_of(imported), data.c_str(), trees.data(), trees.size(), &error) ||
      ink_replace_table(database, slice_of(imported), slice_of(share->name), &error))
    return failure(error);
  close_cursor();
  if (int failed= share->reopen(thd(), table->s))
    return failed;
  unlink(data.c_str());
  unlink(cfg.c_str());
  return 0;
}
