/* SPDX-License-Identifier: GPL-2.0-only */
/* How the pages of a table are kept.

   A table is what its file is: what the definition says counts when the file is made. An ALTER that
   does not name it, TRUNCATE and CREATE .. LIKE make a file like the one that is there, whatever
   the server's variables say by then. Only EXCHANGE PARTITION gives a table a file that its
   definition contradicts; the next file is as the definition says. */
#include "ddl/page_options.h"
#include "handler/ha_inkstone.h"
#include "server/variables.h"
#include "create_options.h"
#include "ha_partition.h"
#include <algorithm>

/* Values of options, with the server's definitions of them below. */
enum { PLACEMENT_DEFAULT, PLACEMENT_IN_PLACE, PLACEMENT_PLACED };
enum { COMPRESSED_DEFAULT, COMPRESSED_NO_FIRST, COMPRESSED_YES_FIRST= 4 };

/** The server fills it from a definition. */
struct ha_table_option_struct
{
  uint page_placement;
  uint page_compressed;
  ulonglong page_compression_level;
};

/* Not HA_TOPTION_BOOL: that would not tell what is off from what is not said. */
ha_create_table_option inkstone_table_options[]= {
    HA_TOPTION_ENUM("PAGE_PLACEMENT", page_placement, "default,in_place,placed", PLACEMENT_DEFAULT),
    HA_TOPTION_ENUM("PAGE_COMPRESSED", page_compressed, "default,0,no,off,1,yes,on", COMPRESSED_DEFAULT),
    HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, 19, 1), HA_TOPTION_END};

bool is_page_option(const LEX_CSTRING &name)
{
  for (const ha_create_table_option *option= inkstone_table_options; option->name; option++)
    if (!my_strcasecmp(system_charset_info, option->name, name.str))
      return true;
  return false;
}

/* As in InnoDB a block size asks for compression, but beside a format that has none. */
static bool is_compressed_format(row_type format, ulong key_block_size)
{
  return format == ROW_TYPE_COMPRESSED ||
         (key_block_size && (format == ROW_TYPE_DEFAULT || format == ROW_TYPE_NOT_USED));
}

static uint placement_in(const HA_CREATE_INFO *info)
{
  return info->option_struct ? info->option_struct->page_placement : uint(PLACEMENT_DEFAULT);
}

static bool says_compressed(const HA_CREATE_INFO *info)
{
  return info->option_struct && info->option_struct->page_compressed >= COMPRESSED_YES_FIRST;
}

static bool says_not_compressed(const HA_CREATE_INFO *info)
{
  return info->option_struct && info->option_struct->page_compressed != COMPRESSED_DEFAULT &&
         !says_compressed(info);
}

/* 0: none is said. */
static ulonglong level_in(const HA_CREATE_INFO *info)
{
  return info->option_struct ? info->option_struct->page_compression_level : 0;
}

const char *page_contradiction(const HA_CREATE_INFO *info)
{
  /* The server shows 64 characters. */
  const bool compressed= is_compressed_format(info->row_type, info->key_block_size);
  const bool by_format= info->row_type == ROW_TYPE_COMPRESSED;
  if (compressed && says_not_compressed(info))
    return by_format ? "PAGE_COMPRESSED=0 with ROW_FORMAT=COMPRESSED" : "PAGE_COMPRESSED=0 with KEY_BLOCK_SIZE";
  if (level_in(info) && !says_compressed(info))
    return "PAGE_COMPRESSION_LEVEL without PAGE_COMPRESSED=1";
  if (placement_in(info) != PLACEMENT_IN_PLACE)
    return nullptr;
  if (says_compressed(info))
    return "PAGE_PLACEMENT=in_place with PAGE_COMPRESSED=1";
  if (!compressed)
    return nullptr;
  return by_format ? "PAGE_PLACEMENT=in_place with ROW_FORMAT=COMPRESSED"
                   : "PAGE_PLACEMENT=in_place with KEY_BLOCK_SIZE";
}

static bool add_option(void *options, ink_slice name, ink_slice value)
{
  static_cast<PageOptions *>(options)->emplace_back(text_of(name), text_of(value));
  return true;
}

PageOptions page_options_of(const ink_table *table)
{
  PageOptions options;
  ink_table_options(table, add_option, &options);
  return options;
}

static bool note_compression(void *compressed, ink_slice name, ink_slice value)
{
  if (!same_bytes(name, INK_STR("page_compression")))
    return true;
  *static_cast<bool *>(compressed)= !same_bytes(value, INK_STR("none"));
  return false;
}

bool has_compressed_pages(const ink_table *table)
{
  bool compressed= false;
  ink_table_options(table, note_compression, &compressed);
  return compressed;
}

/* What is shown of an open table: whatever its definition asked for. */
enum row_type ha_inkstone::get_row_type() const
{
  return has_compressed_pages(access.share->engine_table()) ? ROW_TYPE_COMPRESSED : ROW_TYPE_DYNAMIC;
}

/* What a definition says. */
static PageOptions options_in(const HA_CREATE_INFO *info)
{
  PageOptions options;
  if (placement_in(info) != PLACEMENT_DEFAULT)
    options.emplace_back("page_placement",
                         placement_in(info) == PLACEMENT_PLACED ? "placed" : "in_place");
  if (level_in(info))
  {
    options.emplace_back("page_compression", "zstd");
    options.emplace_back("page_compression_level", std::to_string(level_in(info)));
  }
  else if (is_compressed_format(info->row_type, info->key_block_size))
    options.emplace_back("page_compression", "lz4");
  else if (says_compressed(info))
    options.emplace_back("page_compression", compression_of_pages());
  else if (says_not_compressed(info))
    options.emplace_back("page_compression", "none");
  return options;
}

/* Whether the statement itself, not the definition that it alters, says something of pages. */
static bool names_pages(THD *thd, const TABLE_SHARE *altered, const HA_CREATE_INFO *info)
{
  /* The parser begins a list for ALTER alone: that of another statement is of one before it. */
  const bool has_list= thd_sql_command(thd) == SQLCOM_ALTER_TABLE;
  for (const engine_option_value *option= has_list ? thd->lex->create_info.option_list : nullptr; option;
       option= option->next)
    if (is_page_option(option->name))
      return true;
  return is_compressed_format(info->row_type, info->key_block_size) !=
         is_compressed_format(altered->row_type, altered->key_block_size);
}

/* The engine's tables of one of the server: those of its partitions. */
static std::vector<const ink_table *> engine_tables_of(const TABLE *table)
{
  std::vector<const ink_table *> found;
  handler *const alone[]= {table->file, nullptr};
  handler *const *parts= table->part_info ? static_cast<ha_partition *>(table->file)->get_child_handlers() : alone;
  for (; *parts; parts++)
    if (const ink_table *opened= static_cast<const ha_inkstone *>(*parts)->engine_table())
      found.push_back(opened);
  return found;
}

static bool says(const PageOptions &options, const std::pair<std::string, std::string> &option)
{
  return std::find(options.begin(), options.end(), option) != options.end();
}

/* An ALTER is asked of each partition, and done in place as soon as one of them agrees: so each
   answers for all. */
bool alters_pages(THD *thd, const TABLE *altered, const HA_CREATE_INFO *info)
{
  if (!names_pages(thd, altered->s, info))
    return false;
  const PageOptions wanted= options_in(info);
  for (const ink_table *table : engine_tables_of(altered))
  {
    const PageOptions has= page_options_of(table);
    for (const auto &option : wanted)
      if (!says(has, option))
        return true;
  }
  const auto says_where= [](const std::pair<std::string, std::string> &option) {
    return option.first == "page_placement" || option.second != "none";
  };
  /* What the server's variables say now is for a new file. */
  return std::none_of(wanted.begin(), wanted.end(), says_where);
}

/* Whether a table is another one than its definition says. Compressed by another codec it is none:
   which one that is, the definition leaves open, but for a level. */
static bool is_contradicted(const PageOptions &has, const HA_CREATE_INFO *info)
{
  const bool is_packed= !says(has, {"page_compression", "none"});
  for (const auto &option : options_in(info))
    if (option.first == "page_compression" ? is_packed == (option.second == "none") : !says(has, option))
      return true;
  return false;
}

/* The table that the statement makes another one of; nullptr: there is none, or it is another
   engine's. */
static const TABLE *original(THD *thd)
{
  const TABLE_LIST *tables= thd->lex->query_tables;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_CREATE_TABLE:
    tables= tables && thd->lex->create_info.like() ? tables->next_global : nullptr;
    break;
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    break;
  default:
    tables= nullptr;
  }
  const TABLE *table= tables ? tables->table : nullptr;
  return table && table->file && table->file->partition_ht() == inkstone_hton ? table : nullptr;
}

void page_options_for(THD *thd, const HA_CREATE_INFO *info, PageOptions *options)
{
  const TABLE *copied= original(thd);
  if (!copied || names_pages(thd, copied->s, info))
  {
    *options= options_in(info);
    return;
  }
  const std::vector<const ink_table *> tables= engine_tables_of(copied);
  if (!tables.empty())
    *options= page_options_of(tables[0]);
  if (tables.empty() || is_contradicted(*options, info))
    *options= options_in(info);
}
