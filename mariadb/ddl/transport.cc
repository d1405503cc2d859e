/* SPDX-License-Identifier: GPL-2.0-only */
/* Tables as files: FLUSH TABLES t FOR EXPORT, ALTER TABLE t DISCARD TABLESPACE and IMPORT
   TABLESPACE.

   While a table is exported two files stand beside its definition, in the database's directory:
   t.ink, a link to the table's file, and t.cfg, its trees and its definition; and, where its pages
   are placed, t.places, a link to its place map. All of them are copied into
   the other server's directory of the database, after DISCARD and before IMPORT; IMPORT takes them
   away. A file whose rows or indexes are not what the table's definition says is refused: nothing
   in the file itself tells an INT from a CHAR. */
#include "ddl/page_options.h"
#include "ddl/tables.h"
#include "handler/ha_inkstone.h"
#include "server/change_times.h"
#include <algorithm>
#include <fstream>
#include <sstream>
#include <unistd.h>

/** The first line of a t.cfg. Those of version 1 had no definition. Each other line is a word that
    says what it is about, a name and a value, with tabs between them. */
static const char CFG_HEADER[]= "inkstone table 2";

/** What a t.cfg says. */
struct Exported
{
  /** Name and number; name and type; name and parts; without a name: the version of key images, and
      of a table with AUTO_INCREMENT what it gives next. */
  std::vector<std::pair<std::string, std::string>> trees, columns, keys, images, counters;

  /** The list of a word. nullptr: there is none. */
  std::vector<std::pair<std::string, std::string>> *list(const std::string &word)
  {
    return word == "tree"      ? &trees
           : word == "column"  ? &columns
           : word == "key"     ? &keys
           : word == "images"  ? &images
           : word == "counter" ? &counters
                               : nullptr;
  }
};

static std::string type_of(const Field *field)
{
  StringBuffer<STRING_BUFFER_USUAL_SIZE> type;
  field->sql_type(type);
  std::string text(type.ptr(), type.length());
  if (field->has_charset())
    text+= std::string(" COLLATE ") + field->charset()->coll_name.str;
  if (!field->stored_in_db())
    text+= " VIRTUAL";
  return text + (field->real_maybe_null() ? " NULL" : " NOT NULL");
}

/* As definitions have it, however the session quotes names. */
static std::string expression_of(const Field *field)
{
  THD *const thd= current_thd;
  const Sql_mode_save_for_frm_handling plain(thd);
  const ulonglong options= thd->variables.option_bits;
  StringBuffer<STRING_BUFFER_USUAL_SIZE> expression;
  thd->variables.option_bits|= OPTION_QUOTE_SHOW_CREATE;
  field->vcol_info->print(&expression);
  thd->variables.option_bits= options;
  return std::string(expression.ptr(), expression.length());
}

/* Entries have what virtual columns were computed to: the server's hashes of long unique keys,
   too. */
static std::string parts_of(const KEY &key)
{
  std::string text= key.flags & HA_NOSAME ? "UNIQUE (" : "(";
  for (uint i= 0; i < key.user_defined_key_parts; i++)
  {
    const KEY_PART_INFO &part= key.key_part[i];
    text+= i ? ", " : "";
    text+= part.field->field_name.str;
    if (!part.field->stored_in_db())
      text+= " AS (" + expression_of(part.field) + ")";
    if (part.key_part_flag & HA_PART_KEY_SEG)
      text+= "(" + std::to_string(part.length / part.field->charset()->mbmaxlen) + ")";
    if (part.key_part_flag & HA_REVERSE_SORT)
      text+= " DESC";
  }
  return text + ")";
}

/* What a table's file must fit. */
static Exported definition_of(const TABLE *table, uint64 images)
{
  Exported definition;
  for (Field **field= table->field; *field; field++)
    definition.columns.emplace_back((*field)->field_name.str, type_of(*field));
  for (uint i= 0; i < table->s->keys; i++)
    definition.keys.emplace_back(table->key_info[i].name.str, parts_of(table->key_info[i]));
  definition.images.emplace_back("", std::to_string(images));
  return definition;
}

/* Names may have any character, lines end where they end. */
static std::string escaped(const std::string &text)
{
  std::string result;
  for (const char letter : text)
    switch (letter)
    {
    case '\n': result+= "\\n"; break;
    case '\t': result+= "\\t"; break;
    case '\\': result+= "\\\\"; break;
    default: result+= letter;
    }
  return result;
}

static std::string unescaped(const std::string &text)
{
  std::string result;
  for (size_t i= 0; i < text.size(); i++)
    if (text[i] != '\\' || i + 1 == text.size())
      result+= text[i];
    else
      result+= text[++i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
  return result;
}

static void write_list(std::ofstream &cfg, const char *word,
                       const std::vector<std::pair<std::string, std::string>> &list)
{
  for (const std::pair<std::string, std::string> &each : list)
    cfg << word << '\t' << escaped(each.first) << '\t' << escaped(each.second) << '\n';
}

/* Each partition has files of its own, under its own name. */
static std::string file_of(const std::string &table, const char *extension)
{
  return std::string(mysql_data_home) + FN_LIBCHAR + table + extension;
}

bool waits_for_files(THD *thd, const std::string &table)
{
  ink_error error;
  OwnedTable opened;
  std::vector<uchar> discarded;
  if (::access(file_of(table, ".cfg").c_str(), F_OK) && ::access(file_of(table, ".ink").c_str(), F_OK))
    return false;
  if (open_table(slice_of(table), &opened, &error))
    return false;
  const MetaTree meta= meta_tree_of(slice_of(table), opened.get());
  return meta && !meta_get(thd, meta, INK_STR("discarded"), &discarded) && !discarded.empty();
}

void remove_files(const std::string &table)
{
  for (const char *extension : {".ink", ".places", ".cfg"})
    unlink(file_of(table, extension).c_str());
}

int ha_inkstone::begin_export(THD *thd)
{
  ink_error error;
  if (exporting)
    return 0;
  if (int failed= wait_for_prepared(thd, {access.share->name}))
    return failed;
  access.share->count_exports(1);
  if (::begin_export(access.share->engine_table(), &exporting, &error))
  {
    access.share->count_exports(-1);
    return handler_error(thd, error);
  }
  int failed= write_export(thd);
  if (failed)
    end_export();
  return failed;
}

/* Makes a name beside the table's definition a link to a file of the engine. */
static int link_to(const std::string &file, const std::string &name)
{
  char absolute[FN_REFLEN];
  my_realpath(absolute, file.c_str(), MYF(0));
  unlink(name.c_str());
  if (!symlink(absolute, name.c_str()))
    return 0;
  my_error(ER_CANT_CREATE_FILE, MYF(0), name.c_str(), errno);
  return HA_ERR_INKSTONE;
}

/* Puts the files beside the table's definition. */
int ha_inkstone::write_export(THD *thd)
{
  ink_error error;
  OwnedBytes path;
  const ink_table *engine_table= access.share->engine_table();
  if (ink_table_path(engine_table, path.to_fill(), &error))
    return handler_error(thd, error);
  const std::string file= text_of(path.slice()), definition= file_of(access.share->name, ".cfg");
  std::ofstream cfg(definition);
  cfg << CFG_HEADER << '\n';
  Exported exported= definition_of(table, access.share->image_version());
  for (size_t i= 0; i < ink_table_tree_count(engine_table); i++)
  {
    const ink_tree *tree= ink_table_tree(engine_table, i);
    exported.trees.emplace_back(text_of(ink_tree_name(tree)), std::to_string(ink_tree_number(tree)));
  }
  if (table->found_next_number_field)
    exported.counters.emplace_back("", std::to_string(counter().next()));
  write_list(cfg, "images", exported.images);
  write_list(cfg, "counter", exported.counters);
  write_list(cfg, "column", exported.columns);
  write_list(cfg, "key", exported.keys);
  write_list(cfg, "tree", exported.trees);
  cfg.close();
  if (cfg.fail())
  {
    my_error(ER_CANT_CREATE_FILE, MYF(0), definition.c_str(), errno);
    return HA_ERR_INKSTONE;
  }
  const std::string map= file.substr(0, file.rfind('.')) + ".places";
  if (!::access(map.c_str(), F_OK))
    if (int failed= link_to(map, file_of(access.share->name, ".places")))
      return failed;
  return link_to(file, file_of(access.share->name, ".ink"));
}

void ha_inkstone::end_export()
{
  if (!exporting)
    return;
  remove_files(access.share->name);
  exporting.reset();
  access.share->count_exports(-1);
}

int ha_inkstone::discard_or_import_tablespace(my_bool discard)
{
  // The server takes no lock for it, so there is no transaction either.
  if (table->s->tmp_table != NO_TMP_TABLE)
  {
    // InnoDB's two errors, of which the client gets the first.
    my_error(ER_CANNOT_DISCARD_TEMPORARY_TABLE, MYF(0));
    handler::print_error(HA_ERR_TABLE_NEEDS_UPGRADE, MYF(0));
    return HA_ERR_INKSTONE;
  }
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
  if (access.share->is_discarded())
  {
    push_warning_printf(thd(), Sql_condition::WARN_LEVEL_WARN, ER_TABLESPACE_MISSING,
                        ER_THD(thd(), ER_TABLESPACE_MISSING), access.share->name.c_str());
    return 0;
  }
  uchar next[8];
  mi_int8store(next, counter().next());
  std::vector<ink_row> facts= {{INK_STR("discarded"), INK_STR("1")}};
  if (table->found_next_number_field)
    facts.push_back({INK_STR("a"), {next, sizeof next}});
  if (int failed= replace_by_empty(facts))
    return failed;
  change_times::forget(access.share->name);
  return 0;
}

/* False: the file is no t.cfg of this version. */
static bool read_cfg(const std::string &file, Exported *exported)
{
  std::ifstream cfg(file);
  std::string line;
  if (!std::getline(cfg, line) || line != CFG_HEADER)
    return false;
  while (std::getline(cfg, line))
  {
    const size_t name= line.find('\t'), value= line.find('\t', name + 1);
    if (name == std::string::npos || value == std::string::npos)
      return false;
    if (auto list= exported->list(line.substr(0, name)))
      list->emplace_back(unescaped(line.substr(name + 1, value - name - 1)), unescaped(line.substr(value + 1)));
  }
  return !exported->trees.empty() && exported->images.size() == 1;
}

/* How the file's columns or indexes differ from the table's; empty: they do not. */
static std::string difference(const char *one, const char *several, const std::vector<std::pair<std::string, std::string>> &in_file,
                              const std::vector<std::pair<std::string, std::string>> &in_table)
{
  if (in_file.size() != in_table.size())
    return "the file has " + std::to_string(in_file.size()) + " " + several + " and the table " +
           std::to_string(in_table.size());
  for (size_t i= 0; i < in_file.size(); i++)
    if (in_file[i] != in_table[i])
      return std::string(one) + " " + std::to_string(i + 1) + " is " + in_file[i].first + " " + in_file[i].second +
             " in the file and " + in_table[i].first + " " + in_table[i].second + " in the table";
  return std::string();
}

/* Rows lie by an index that has no tree of its own: the primary key, or the first unique one
   without NULLs, which in the file may be another one. */
static bool is_ordered_alike(const Exported &file, const TABLE *table)
{
  const auto has_tree= [&](const KEY &key) {
    return std::any_of(file.trees.begin(), file.trees.end(),
                       [&](const std::pair<std::string, std::string> &tree) { return tree.first == key.name.str; });
  };
  for (uint i= 0; i < table->s->keys; i++)
    if (has_tree(table->key_info[i]) == (i == table->s->primary_key))
      return false;
  return true;
}

static std::string difference(Exported &file, const TABLE *table)
{
  Exported definition= definition_of(table, IMAGE_VERSION);
  if (strtoull(file.images[0].second.c_str(), nullptr, 10) > IMAGE_VERSION)
    return "the file has key images of version " + file.images[0].second + ", and this plugin knows those up to " +
           definition.images[0].second;
  const std::string columns= difference("column", "columns", file.columns, definition.columns);
  if (!columns.empty())
    return columns;
  /* Each index is found by its name. */
  std::sort(file.keys.begin(), file.keys.end());
  std::sort(definition.keys.begin(), definition.keys.end());
  const std::string keys= difference("index", "indexes", file.keys, definition.keys);
  return !keys.empty() || is_ordered_alike(file, table) ? keys : "the file has its rows by another unique index than the table";
}

/* A damaged file is not the table's: the server's message about damaged tables would point to the
   wrong place. */
static bool refused_file(const ink_error &error)
{
  if (error.code != INK_CORRUPT && error.code != INK_NOT_A_DATABASE)
    return false;
  my_error(ER_INTERNAL_ERROR, MYF(0), error.message);
  return true;
}

int ha_inkstone::import_table()
{
  const std::string cfg= file_of(access.share->name, ".cfg"), data= file_of(access.share->name, ".ink");
  Exported exported;
  /* The file's rows take the place of the table's: they may still be wanted if they were not
     discarded. */
  if (!access.share->is_discarded())
  {
    my_error(ER_TABLESPACE_EXISTS, MYF(0), access.share->name.c_str());
    return HA_ERR_TABLE_EXIST;
  }
  if (::access(cfg.c_str(), R_OK))
  {
    my_error(ER_FILE_NOT_FOUND, MYF(0), cfg.c_str(), errno);
    return HA_ERR_INKSTONE;
  }
  const std::string differs=
      read_cfg(cfg, &exported) ? difference(exported, table) : cfg + " is none of this version: export the table again";
  if (!differs.empty())
  {
    my_error(ER_TABLE_SCHEMA_MISMATCH, MYF(0), differs.c_str());
    return HA_ERR_INKSTONE;
  }
  std::vector<ink_import_tree> trees;
  for (const std::pair<std::string, std::string> &tree : exported.trees)
    trees.push_back({static_cast<uint32_t>(strtoul(tree.second.c_str(), nullptr, 10)), slice_of(tree.first)});
  /* Its pages are kept as the table's definition says, which the discarded one was made with. */
  const PageOptions pages= page_options_of(access.share->engine_table());
  std::vector<ink_option> options;
  for (const auto &option : pages)
    options.push_back({slice_of(option.first), slice_of(option.second)});
  ink_error error;
  const std::string imported= access.share->name + REPLACEMENT;
  if (ink_import_table(database, slice_of(imported), data.c_str(), trees.data(), trees.size(),
                       options.data(), options.size(), &error))
    return refused_file(error) ? HA_ERR_INKSTONE : failure(error);
  if (ink_replace_table(database, slice_of(imported), slice_of(access.share->name), &error))
    return failure(error);
  scan.close();
  if (int failed= access.share->reopen(thd(), table->s))
    return failed;
  /* What the other server had reserved; the file itself has what its rows were given. */
  if (table->found_next_number_field && !exported.counters.empty())
    if (int failed= counter().set(thd(), strtoull(exported.counters[0].second.c_str(), nullptr, 10)))
      return failed;
  remove_files(access.share->name);
  return 0;
}
